//! The n-gram model: which symbol follows which few others, by how often it did in a text.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::quantise::{quantise, Cumulative};
use super::vocabulary::{self, SIZE, SYMBOLS};
use super::{float_text, CarrierError, Shape};
use crate::wire::{hex, Json};

/// The model's type, as its file names it.
pub const TYPE: &str = "ngram-v1";

/// What stands before the text.
const BEFORE: u8 = b'^';

/// The longest context.
pub const MAX_ORDER: usize = 16;

/// How many contexts a model has at most: those of order 3 all at once, and as many again.
pub const MAX_CONTEXTS: usize = 1 << 19;

/// How often a symbol was seen after a context.
type Counts = [u32; SIZE];

/// A trained model.
#[derive(Clone, Debug)]
pub struct NGram {
    order: usize,
    alpha: f64,
    uniform_mix: f64,
    contexts: HashMap<Key, u32>,
    counts: Vec<Counts>,
    tree: Tree,
    fingerprint: String,
}

/// Two are the same if their files are; in which order they met their contexts does not matter.
impl PartialEq for NGram {
    fn eq(&self, other: &NGram) -> bool {
        self.fingerprint == other.fingerprint
    }
}

/// How a model is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    /// How many characters a context has (2).
    pub order: usize,
    /// Added to each count (1).
    pub alpha: f64,
    /// The share of the even distribution (0.5).
    pub uniform_mix: f64,
}

impl Default for Training {
    fn default() -> Training {
        Training { order: 2, alpha: 1.0, uniform_mix: 0.5 }
    }
}

impl Training {
    /// Refuses what makes no sense.
    ///
    /// # Errors
    /// The first number that is out of its bounds.
    pub fn check(&self) -> Result<(), CarrierError> {
        if self.order > MAX_ORDER {
            return wrong(format!("order is at most {MAX_ORDER}, not {}", self.order));
        }
        if !(self.alpha > 0.0 && self.alpha.is_finite()) {
            return wrong(format!("alpha must be positive and finite, not {}", float_text::repr(self.alpha)));
        }
        if !(0.0..=1.0).contains(&self.uniform_mix) {
            let mix = float_text::repr(self.uniform_mix);
            return wrong(format!("uniform_mix must be between 0 and 1, not {mix}"));
        }
        Ok(())
    }
}

fn wrong<T>(what: String) -> Result<T, CarrierError> {
    Err(CarrierError::Model(what))
}

/// What stands in a [`Key`] for a symbol: its number and 1. For what stands before the text: [`BEFORE_CODE`].
const BEFORE_CODE: u8 = SIZE as u8 + 1;

/// A context of up to [`MAX_ORDER`] characters, seven bits each, the last one lowest. No code is 0, so that the
/// length shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key(u128);

impl Key {
    const BITS: u32 = 7;

    fn start(order: usize) -> Key {
        (0..order).fold(Key(0), |key, _| key.followed_by(BEFORE_CODE, order))
    }

    /// Of characters that contexts have.
    fn of(text: &[u8]) -> Key {
        let code = |byte: u8| if byte == BEFORE { BEFORE_CODE } else { vocabulary::index(byte) + 1 };
        text.iter().fold(Key(0), |key, byte| key.followed_by(code(*byte), MAX_ORDER))
    }

    /// The last `most` characters of this context and one more.
    #[inline(always)]
    fn followed_by(self, code: u8, most: usize) -> Key {
        Key((self.0 << Self::BITS | u128::from(code)) & ((1 << (Self::BITS * most as u32)) - 1))
    }

    /// The codes, from the last one back.
    #[inline(always)]
    fn backwards(self) -> impl Iterator<Item = u8> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let code = rest as u8 & 127;
            rest >>= Self::BITS;
            (code != 0).then_some(code)
        })
    }

    fn text(self) -> String {
        let character = |code: u8| match code {
            BEFORE_CODE => char::from(BEFORE),
            code => char::from(SYMBOLS[usize::from(code - 1) % SIZE]),
        };
        let mut text: Vec<char> = self.backwards().map(character).collect();
        text.reverse();
        text.into_iter().collect()
    }
}

/// The contexts as a tree, from their last character back: the way down that a text's end goes as far as it leads.
#[derive(Clone, Debug, Default)]
struct Tree {
    nodes: Vec<Node>,
    /// What follows a node that something follows: for each code the number of a node, or 0.
    rows: Vec<[u32; SIZE + 2]>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// The number of the context that ends here, or [`NOWHERE`].
    place: u32,
    /// Of `rows`, or [`NOWHERE`].
    row: u32,
}

const NOWHERE: u32 = u32::MAX;

/// How many rows a tree has at most, 17 MiB of them. They are enough for every context of order 3; a model with long
/// contexts that need more is refused.
const MAX_ROWS: usize = 1 << 16;

impl Tree {
    fn new(contexts: &HashMap<Key, u32>, order: usize) -> Option<Tree> {
        let mut tree = Tree { nodes: vec![Node { place: NOWHERE, row: NOWHERE }], rows: Vec::new() };
        for (key, place) in contexts {
            // One that is longer than the order is a part of the file, and never met.
            if key.backwards().count() > order {
                continue;
            }
            let mut at = 0;
            for code in key.backwards() {
                at = tree.child(at, code)?;
            }
            tree.nodes[at].place = *place;
        }
        Some(tree)
    }

    fn child(&mut self, node: usize, code: u8) -> Option<usize> {
        if self.nodes[node].row == NOWHERE {
            if self.rows.len() == MAX_ROWS {
                return None;
            }
            self.nodes[node].row = self.rows.len() as u32;
            self.rows.push([0; SIZE + 2]);
        }
        let child = &mut self.rows[self.nodes[node].row as usize][usize::from(code)];
        if *child == 0 {
            *child = self.nodes.len() as u32;
            self.nodes.push(Node { place: NOWHERE, row: NOWHERE });
        }
        Some(*child as usize)
    }

    /// The number of the longest known context at the end of this one.
    #[inline(always)]
    fn longest(&self, context: Key) -> u32 {
        let mut node = self.nodes[0];
        let mut found = node.place;
        for code in context.backwards() {
            let Some(row) = self.rows.get(node.row as usize) else { break };
            let child = row.get(usize::from(code)).copied().unwrap_or(0);
            if child == 0 {
                break;
            }
            node = self.nodes[child as usize];
            if node.place != NOWHERE {
                found = node.place;
            }
        }
        found
    }
}

impl NGram {
    /// Counts the text's characters; those outside the vocabulary are passed over.
    ///
    /// # Errors
    /// Settings that make no sense; more than [`MAX_CONTEXTS`] contexts.
    pub fn train(text: &[u8], training: &Training) -> Result<NGram, CarrierError> {
        training.check()?;
        let mut contexts = HashMap::new();
        let mut counts: Vec<Counts> = Vec::new();
        let mut context = Key::start(training.order);
        for character in text {
            let symbol = vocabulary::index(*character);
            if symbol == vocabulary::NONE {
                continue;
            }
            let place = *contexts.entry(context).or_insert(counts.len() as u32) as usize;
            if place == counts.len() {
                if place == MAX_CONTEXTS {
                    return wrong(format!("the text has more than {MAX_CONTEXTS} contexts of that order"));
                }
                counts.push([0; SIZE]);
            }
            let count = &mut counts[place][usize::from(symbol)];
            *count = count.checked_add(1).ok_or_else(|| CarrierError::Model("a count passes 2^32".into()))?;
            context = context.followed_by(symbol + 1, training.order);
        }
        NGram::new(training, contexts, counts)
    }

    fn new(
        training: &Training,
        contexts: HashMap<Key, u32>,
        counts: Vec<Counts>,
    ) -> Result<NGram, CarrierError> {
        let Training { order, alpha, uniform_mix } = *training;
        let Some(tree) = Tree::new(&contexts, order) else {
            return wrong(format!(
                "the contexts are too many for their length: more than {MAX_ROWS} ways on"
            ));
        };
        let mut model =
            NGram { order, alpha, uniform_mix, contexts, counts, tree, fingerprint: String::new() };
        let mut hash = Sha256::new();
        model.json(|part| hash.update(part.as_bytes()));
        model.fingerprint = hex::encode(&hash.finalize());
        Ok(model)
    }

    /// Reads a model's file that was checked to be JSON of this type.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_json(json: Json<'_>) -> Result<NGram, CarrierError> {
        super::model::check_vocabulary(json)?;
        let training = Training {
            order: super::model::whole(json, "order", 0, MAX_ORDER)?,
            alpha: super::model::number(json, "alpha")?,
            uniform_mix: super::model::number(json, "uniform_mix")?,
        };
        training.check()?;
        let all = super::model::needed(json, "counts")?;
        if !all.is_object() {
            return wrong(format!("counts must be an object, not {}", all.kind()));
        }
        let (mut contexts, mut counts) = (HashMap::new(), Vec::new());
        for member in all.members() {
            let key = member.key.as_bytes();
            let known = |byte: &u8| *byte == BEFORE || vocabulary::index(*byte) != vocabulary::NONE;
            if key.len() > MAX_ORDER || !key.iter().all(known) {
                let shown: String = member.key.chars().take(32).collect();
                return wrong(format!("counts has a context that no text has: {shown:?}"));
            }
            if counts.len() == MAX_CONTEXTS {
                return wrong(format!("counts has more than {MAX_CONTEXTS} contexts"));
            }
            contexts.insert(Key::of(key), counts.len() as u32);
            counts.push(read_counts(&member.key, member.value)?);
        }
        NGram::new(&training, contexts, counts)
    }

    /// Hands the canonical JSON, without a newline behind it, to `out` in parts.
    pub fn json(&self, mut out: impl FnMut(&str)) {
        out(&format!("{{\"alpha\":{},\"counts\":{{", float_text::repr(self.alpha)));
        let mut sorted: Vec<(String, u32)> =
            self.contexts.iter().map(|(key, at)| (key.text(), *at)).collect();
        sorted.sort_unstable();
        for (index, (context, at)) in sorted.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let mut part = format!("{comma}\"{context}\":");
            for (index, count) in self.counts[*at as usize].iter().enumerate() {
                part.push(if index > 0 { ',' } else { '[' });
                part.push_str(&count.to_string());
            }
            part.push(']');
            out(&part);
        }
        out(&format!(
            "}},\"model_type\":\"{TYPE}\",\"order\":{},\"uniform_mix\":{},\"vocab\":\"{}\"}}",
            self.order,
            float_text::repr(self.uniform_mix),
            vocabulary::text()
        ));
    }

    /// The SHA-256 of its canonical JSON.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// How many characters a context has.
    pub fn order(&self) -> usize {
        self.order
    }

    /// The share of the even distribution.
    pub fn uniform_mix(&self) -> f64 {
        self.uniform_mix
    }

    /// How many contexts it knows.
    pub fn contexts(&self) -> usize {
        self.counts.len()
    }

    /// The number of the longest known context at the end of this one; [`Self::contexts`] if there is none.
    #[inline(always)]
    fn place(&self, context: Key) -> usize {
        (self.tree.longest(context) as usize).min(self.counts.len())
    }

    fn probabilities_at(&self, place: usize) -> [f64; SIZE] {
        const NOTHING: Counts = [0; SIZE];
        let counts = self.counts.get(place).unwrap_or(&NOTHING);
        let sum: u64 = counts.iter().map(|count| u64::from(*count)).sum();
        let total = sum as f64 + self.alpha * SIZE as f64;
        let own = 1.0 - self.uniform_mix;
        let even = self.uniform_mix * (1.0 / SIZE as f64);
        counts.map(|count| own * ((f64::from(count) + self.alpha) / total) + even)
    }
}

fn read_counts(context: &str, value: Json<'_>) -> Result<Counts, CarrierError> {
    let mut counts = [0; SIZE];
    let mut elements = value.elements();
    for count in &mut counts {
        let Some(element) = elements.next() else {
            return wrong(format!("the counts of {context:?} are no array of {SIZE} numbers"));
        };
        *count = match element.raw().parse() {
            Ok(count) => count,
            Err(_) => {
                let shown: String = element.raw().chars().take(32).collect();
                let bounds = "a whole number from 0 to 4294967295";
                return wrong(format!("a count of {context:?} must be {bounds}, not {shown}"));
            }
        };
    }
    match elements.next() {
        None => Ok(counts),
        Some(_) => wrong(format!("the counts of {context:?} are more than {SIZE}")),
    }
}

/// A way through a text.
#[derive(Clone, Debug)]
pub struct Walk<'m> {
    model: &'m NGram,
    shape: Shape,
    context: Key,
    place: usize,
    /// The tables of the contexts that were met, and last of none.
    tables: Vec<Option<Box<Cumulative>>>,
}

impl<'m> Walk<'m> {
    /// One that begins before the text.
    pub fn new(model: &'m NGram, shape: &Shape) -> Walk<'m> {
        let context = Key::start(model.order);
        let tables = vec![None; model.counts.len() + 1];
        Walk { model, shape: *shape, context, place: model.place(context), tables }
    }

    /// What the model says of the next symbol, unshaped.
    pub fn probabilities(&self) -> [f64; SIZE] {
        self.model.probabilities_at(self.place)
    }

    #[cold]
    #[inline(never)]
    fn make(&mut self) -> Result<(), CarrierError> {
        let mut shares = self.probabilities();
        self.shape.apply(&mut shares)?;
        self.tables[self.place] = Some(Box::new(Cumulative::of(&quantise(&shares))));
        Ok(())
    }
}

impl super::Walk for Walk<'_> {
    #[inline(always)]
    fn table(&mut self) -> Result<&Cumulative, CarrierError> {
        if self.tables[self.place].is_none() {
            self.make()?;
        }
        self.tables[self.place].as_deref().ok_or(CarrierError::Entropy)
    }

    #[inline(always)]
    fn advance(&mut self, symbol: u8) {
        self.context = self.context.followed_by((symbol & 63) + 1, self.model.order);
        self.place = self.model.place(self.context);
    }
}
