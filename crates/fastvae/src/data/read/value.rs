//! Numbers and times as people write them in text files.

/// A number; `None` where the text is none. Infinities and NaN are left to the caller.
pub(crate) fn number(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Seconds since the epoch: an integer, a decimal number, or a date (`2013-10-16`, `2013-10-16T17:49:04Z`,
/// `2013-10-16 17:49:04.5+02:00`; without a zone it is UTC).
pub(crate) fn timestamp(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(seconds) = text.parse::<i64>() {
        return Some(seconds);
    }
    match text.parse::<f64>() {
        Ok(seconds) => (seconds.is_finite() && seconds.abs() < 9e18).then_some(seconds.floor() as i64),
        Err(_) => date(text),
    }
}

fn date(text: &str) -> Option<i64> {
    let (day, rest) = text.split_at_checked(10)?;
    let mut parts = day.split('-');
    let (year, month, day) = (digits(parts.next()?)?, digits(parts.next()?)?, digits(parts.next()?)?);
    if parts.next().is_some() || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let midnight = days_since_epoch(year, month, day) * 86_400;
    let Some(clock) = rest.strip_prefix(['T', ' ']) else {
        return rest.is_empty().then_some(midnight);
    };
    let (clock, offset) = match clock.find(['Z', '+', '-']) {
        Some(at) if &clock[at..] == "Z" => (&clock[..at], 0),
        Some(at) => {
            let sign = if clock.as_bytes()[at] == b'-' { -1 } else { 1 };
            let (hours, minutes) = clock[at + 1..].split_at_checked(2)?;
            let minutes = minutes.strip_prefix(':').unwrap_or(minutes);
            let minutes = if minutes.is_empty() { 0 } else { digits(minutes)? };
            (&clock[..at], sign * (digits(hours)? * 3600 + minutes * 60))
        }
        None => (clock, 0),
    };
    let mut parts = clock.trim_end().split(':');
    let (hours, minutes) = (digits(parts.next()?)?, digits(parts.next()?)?);
    let seconds = match parts.next() {
        Some(seconds) => digits(seconds.split('.').next()?)?,
        None => 0,
    };
    (hours < 24 && minutes < 60 && seconds <= 60 && parts.next().is_none())
        .then_some(midnight + hours * 3600 + minutes * 60 + seconds - offset)
}

fn digits(text: &str) -> Option<i64> {
    let plain = !text.is_empty() && text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// Days from 1970-01-01 in the Gregorian calendar (Hinnant, "chrono-compatible low-level date algorithms").
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_the_usual_spellings() {
        for (text, seconds) in [
            ("1381945744", 1_381_945_744),
            ("1381945744.7", 1_381_945_744),
            ("9.78300760e8", 978_300_760),
            ("1970-01-01", 0),
            ("2000-02-29", 951_782_400),
            ("2013-10-16T17:49:04Z", 1_381_945_744),
            ("2013-10-16 17:49:04.25", 1_381_945_744),
            ("2013-10-16T19:49:04+02:00", 1_381_945_744),
            ("2013-10-16 17:49", 1_381_945_740),
        ] {
            assert_eq!(timestamp(text.as_bytes()), Some(seconds), "{text}");
        }
        for text in ["", "yesterday", "2013-13-01", "2013-10-16T25:00:00", "nan", "16.10.2013", "2013-10-1x"]
        {
            assert_eq!(timestamp(text.as_bytes()), None, "{text}");
        }
    }
}
