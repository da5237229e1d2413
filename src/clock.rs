//! Dates as the protocol and the log write them.

/// `2026-05-09T00:00:00Z`. Civil date from day number, after Howard Hinnant's `civil_from_days`.
pub fn utc(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Whether a text is a date as [`utc`] writes it, as far as its digits tell.
pub fn is_utc(text: &str) -> bool {
    let number = |from: usize, to: usize| text.get(from..to).and_then(|digits| digits.parse::<u32>().ok());
    let form = text.bytes().zip(b"dddd-dd-ddTdd:dd:ddZ").all(|(byte, form)| match form {
        b'd' => byte.is_ascii_digit(),
        other => byte == *other,
    });
    form && text.len() == 20
        && number(5, 7).is_some_and(|month| (1..=12).contains(&month))
        && number(8, 10).is_some_and(|day| (1..=31).contains(&day))
        && number(11, 13).is_some_and(|hour| hour < 24)
        && number(14, 16).is_some_and(|minute| minute < 60)
        && number(17, 19).is_some_and(|second| second <= 60)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_date_of_another_form_is_none() {
        assert!(super::is_utc("2026-05-09T00:00:00Z"));
        for text in [
            "",
            "2026-05-09",
            "2026-05-09T00:00:00",
            "2026-13-09T00:00:00Z",
            "2026-05-09T24:00:00Z",
            "2026-05-09T00:00:00ZZ",
            "2026-05-09t00:00:00Z",
        ] {
            assert!(!super::is_utc(text), "{text}");
        }
    }

    #[test]
    fn dates_around_leap_days() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_778_284_800, "2026-05-09T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
        ] {
            assert_eq!(super::utc(seconds), text);
        }
    }
}
