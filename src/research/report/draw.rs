//! Plots as SVG. Texts of others go through [`plain`]; colours are classes of the page's style.

use std::fmt::Write as _;

use crate::capsule::report::text::plain;

const WIDTH: f64 = 720.0;

/// What a reader who does not see the drawing is told.
pub struct Told<'a> {
    /// Its name within the page.
    pub id: &'a str,
    /// What is drawn.
    pub title: &'a str,
    /// What can be seen, in a sentence.
    pub about: &'a str,
}

/// A bar: what it is about, its length, its class (0 to 5).
pub struct Bar {
    pub label: String,
    pub value: f64,
    pub class: usize,
}

fn open(told: &Told<'_>, height: f64) -> String {
    let Told { id, title, about } = told;
    format!(
        "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\n\
         <title id=\"{id}-t\">{}</title>\n<desc id=\"{id}-d\">{}</desc>\n",
        plain(title),
        plain(about)
    )
}

/// At most so many characters of a label, so that it stays in its place.
fn label(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => plain(&(text.chars().take(most - 1).collect::<String>() + "…")),
        false => plain(text),
    }
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, class: &str, content: &str) {
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{content}</text>"
    );
}

fn line(out: &mut String, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ = writeln!(
        out,
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

/// Bars beside each other, from the left; `axis` names the values and their unit.
pub fn bars(told: &Told<'_>, axis: &str, bars: &[Bar], digits: usize) -> String {
    let (left, right, top, step) = (210.0, 650.0, 10.0, 24.0);
    let bottom = top + step * bars.len() as f64;
    let scale = Scale::linear(bars.iter().map(|bar| bar.value));
    let x = |value: f64| left + (right - left) * scale.place(value);
    let mut out = open(told, bottom + 46.0);
    for tick in scale.ticks() {
        line(&mut out, "grid", (x(tick), top), (x(tick), bottom));
        text(&mut out, x(tick), bottom + 16.0, "middle", "tick", &short(tick));
    }
    for (at, bar) in bars.iter().enumerate() {
        let y = top + step * at as f64;
        text(&mut out, left - 8.0, y + 16.0, "end", "label", &label(&bar.label, 30));
        let (width, class) = ((x(bar.value) - left).max(0.0), bar.class);
        let _ = writeln!(
            out,
            "<rect class=\"fill{class}\" x=\"{left}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{}\"/>",
            y + 3.0,
            step - 6.0
        );
        text(&mut out, x(bar.value) + 6.0, y + 16.0, "start", "value", &format!("{:.digits$}", bar.value));
    }
    line(&mut out, "axis", (left, top), (left, bottom));
    text(&mut out, (left + right) / 2.0, bottom + 38.0, "middle", "name", &plain(axis));
    out + "</svg>\n"
}

/// Columns side by side, each with a short label below it, and a level that they are compared with.
pub fn columns(told: &Told<'_>, axis: &str, columns: &[(String, f64)], level: (f64, &str)) -> String {
    let (left, right, top, bottom) = (56.0, 710.0, 22.0, 190.0);
    let scale = Scale::linear(columns.iter().map(|(_, value)| *value).chain([level.0]));
    let y = |value: f64| bottom - (bottom - top) * scale.place(value);
    let step = (right - left) / columns.len().max(1) as f64;
    let mut out = open(told, bottom + 44.0);
    for tick in scale.ticks() {
        line(&mut out, "grid", (left, y(tick)), (right, y(tick)));
        text(&mut out, left - 6.0, y(tick) + 4.0, "end", "tick", &short(tick));
    }
    for (at, (name, value)) in columns.iter().enumerate() {
        let x = left + step * at as f64;
        let _ = writeln!(
            out,
            "<rect class=\"fill0\" x=\"{:.2}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{:.1}\"/>",
            x + step * 0.12,
            y(*value),
            step * 0.76,
            bottom - y(*value)
        );
        text(&mut out, x + step / 2.0, bottom + 14.0, "middle", "tiny", &plain(name));
    }
    line(&mut out, "axis", (left, bottom), (right, bottom));
    line(&mut out, "level", (left, y(level.0)), (right, y(level.0)));
    text(&mut out, right, 14.0, "end", "tick", &format!("dashed: {}", plain(level.1)));
    text(&mut out, left - 44.0, 14.0, "start", "name", &plain(axis));
    text(&mut out, (left + right) / 2.0, bottom + 36.0, "middle", "name", "character");
    out + "</svg>\n"
}

/// Points of one kind, joined through their averages.
pub struct Series {
    pub label: String,
    /// 0 to 5: colour.
    pub class: usize,
    /// Hollow squares and a dashed line instead of dots and a whole one.
    pub hollow: bool,
    pub points: Vec<(f64, f64)>,
}

/// Points over two logarithmic axes, which are named with their units.
pub fn points(told: &Told<'_>, (x_axis, y_axis): (&str, &str), series: &[Series]) -> String {
    let (left, right, top, bottom) = (70.0, 690.0, 30.0, 320.0);
    let all = || series.iter().flat_map(|series| series.points.iter());
    let (across, up) = (Scale::decades(all().map(|(x, _)| *x)), Scale::decades(all().map(|(_, y)| *y)));
    let x = |value: f64| left + (right - left) * across.place(value);
    let y = |value: f64| bottom - (bottom - top) * up.place(value);
    let legend = bottom + 66.0;
    let mut out = open(told, legend + 20.0 * series.len().div_ceil(3) as f64);
    for tick in across.ticks() {
        line(&mut out, "grid", (x(tick), top), (x(tick), bottom));
        text(&mut out, x(tick), bottom + 18.0, "middle", "tick", &short(tick));
    }
    for tick in up.ticks() {
        line(&mut out, "grid", (left, y(tick)), (right, y(tick)));
        text(&mut out, left - 8.0, y(tick) + 4.0, "end", "tick", &short(tick));
    }
    line(&mut out, "axis", (left, bottom), (right, bottom));
    line(&mut out, "axis", (left, top), (left, bottom));
    for (at, one) in series.iter().enumerate() {
        let dash = if one.hollow { " dashed" } else { "" };
        let path: Vec<String> =
            averages(&one.points).iter().map(|(px, py)| format!("{:.1},{:.1}", x(*px), y(*py))).collect();
        let _ = writeln!(out, "<polyline class=\"line{}{dash}\" points=\"{}\"/>", one.class, path.join(" "));
        for (px, py) in &one.points {
            mark(&mut out, one, x(*px), y(*py));
        }
        let (lx, ly) = (left + 215.0 * (at % 3) as f64, legend + 20.0 * (at / 3) as f64);
        mark(&mut out, one, lx, ly - 4.0);
        text(&mut out, lx + 12.0, ly, "start", "label", &label(&one.label, 30));
    }
    text(&mut out, (left + right) / 2.0, bottom + 40.0, "middle", "name", &plain(x_axis));
    text(&mut out, 10.0, 16.0, "start", "name", &plain(y_axis));
    out + "</svg>\n"
}

fn mark(out: &mut String, series: &Series, x: f64, y: f64) {
    let class = series.class;
    let _ = match series.hollow {
        true => writeln!(
            out,
            "<rect class=\"hollow{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\"/>",
            x - 4.0,
            y - 4.0
        ),
        false => writeln!(out, "<circle class=\"fill{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"/>"),
    };
}

/// One point for each place: the average of those there.
fn averages(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut sorted = points.to_vec();
    sorted.sort_by(|one, other| one.0.total_cmp(&other.0));
    let groups = sorted.chunk_by(|one, other| one.0 == other.0);
    groups.map(|group| (group[0].0, group.iter().map(|(_, y)| y).sum::<f64>() / group.len() as f64)).collect()
}

/// A tick's number: no more digits than it needs.
fn short(value: f64) -> String {
    match value {
        _ if value == 0.0 => "0".into(),
        _ if (0.001..1e6).contains(&value) => {
            let text = format!("{value:.4}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        _ => format!("{value:e}"),
    }
}

/// From values to the places between 0 and 1.
struct Scale {
    from: f64,
    upto: f64,
    step: f64,
    logarithmic: bool,
}

impl Scale {
    /// From nothing up to a round number.
    fn linear(values: impl Iterator<Item = f64>) -> Scale {
        let most = values.fold(0.0, f64::max).max(1e-9);
        let decade = 10_f64.powf((most / 5.0).log10().floor());
        let factors = [1.0, 2.0, 5.0, 10.0];
        let step = decade * factors.into_iter().find(|factor| decade * factor * 5.0 >= most).unwrap_or(10.0);
        Scale { from: 0.0, upto: step * (most / step).ceil(), step, logarithmic: false }
    }

    /// Whole powers of ten.
    fn decades(values: impl Iterator<Item = f64> + Clone) -> Scale {
        let least = values.clone().fold(f64::MAX, f64::min).log10().floor();
        let most = values.fold(f64::MIN_POSITIVE, f64::max).log10().ceil().max(least + 1.0);
        Scale { from: least, upto: most, step: 1.0, logarithmic: true }
    }

    fn place(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.log10() } else { value };
        (value - self.from) / (self.upto - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        let count = ((self.upto - self.from) / self.step).round() as usize;
        let tick = |at: usize| self.from + self.step * at as f64;
        match self.logarithmic {
            true => (0..=count).map(|at| format!("1e{}", tick(at)).parse().unwrap_or(0.0)).collect(),
            false => (0..=count).map(tick).collect(),
        }
    }
}
