//! Durations in text: `30s`, `500ms`, `2m`.

use std::time::Duration;

/// Each unit in milliseconds.
const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Parses numbers with units, as `30s` or `1m30s`, rounded down to a millisecond. A number without a unit is ambiguous,
/// except 0. Several numbers have units of decreasing length.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let wrong = || {
        format!(
            "{text:?} is not a duration: use a number and one of ms, s, m, h, d, such as 500ms, 30s, 1.5s, 2m, 1h or 1d, \
             or several: 1m30s"
        )
    };
    let too_long = || format!("{text:?} is too long: the limit is 2^64 - 1 milliseconds");
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let (mut rest, mut shortest, mut sum) = (text, u64::MAX, 0_u64);
    loop {
        let digits = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(is_number).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let known = UNITS.iter().find(|(name, factor)| *name == unit && *factor < shortest);
        let (_, factor) = known.ok_or_else(wrong)?;
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let whole: u64 = whole.parse().map_err(|_| wrong())?;
        let whole = whole.checked_mul(*factor).ok_or_else(too_long)?;
        if part.is_empty() || part.len() > 9 || !part.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(wrong());
        }
        let scale = 10_u64.pow(u32::try_from(part.len()).unwrap_or(9));
        let part = part.parse::<u64>().map_err(|_| wrong())? * factor / scale;
        sum = whole.checked_add(part).and_then(|ms| sum.checked_add(ms)).ok_or_else(too_long)?;
        (rest, shortest) = (after, *factor);
        if rest.is_empty() {
            return Ok(Duration::from_millis(sum));
        }
    }
}

/// Formats a duration for people, as `820ms`, `4.2s`, `3m20s` or `2h5m`.
pub(crate) fn show(duration: Duration) -> String {
    let ms = duration.as_millis();
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{}m{}s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{}h{}m", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

/// Formats a latency for people, as `0.09ms`, `1.23ms`, `45.6ms` or `345ms`.
pub(crate) fn show_latency(latency: Duration) -> String {
    let micros = latency.as_micros();
    match micros {
        0..10_000 => format!("{}.{:02}ms", micros / 1_000, micros % 1_000 / 10),
        10_000..100_000 => format!("{}.{}ms", micros / 1_000, micros % 1_000 / 100),
        _ => format!("{}ms", micros / 1_000),
    }
}

/// The duration in whole milliseconds, for JSON.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_a_unit_are_parsed() {
        let table = [
            ("0", 0),
            ("500ms", 500),
            ("30s", 30_000),
            ("1.5s", 1_500),
            ("0.25s", 250),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
            ("1m30s", 90_000),
            ("2h5m", 7_500_000),
            ("1d1h1m1.5s", 90_061_500),
        ];
        for (text, ms) in table {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn other_text_is_rejected() {
        for text in [
            "",
            "30",
            "s",
            "-1s",
            "1 s",
            "1,5s",
            "1.s",
            ".5s",
            "1e3s",
            "30sec",
            "99999999999999999999s",
            "30s1m",
            "1s1s",
            "1m30",
            "1m s",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        let error = parse("30").unwrap_err();
        assert!(
            ["500ms", "30s", "1.5s", "2m", "1h", "1d", "1m30s"].iter().all(|form| error.contains(form)),
            "{error}"
        );
        assert!(parse("18446744073709551615h").is_err());
    }

    #[test]
    fn durations_are_formatted_for_people() {
        let table = [(0, "0ms"), (999, "999ms"), (4_250, "4.2s"), (200_000, "3m20s"), (7_500_000, "2h5m")];
        for (ms, text) in table {
            assert_eq!(show(Duration::from_millis(ms)), text);
        }
        let table = [(90, "0.09ms"), (1_234, "1.23ms"), (45_678, "45.6ms"), (345_678, "345ms")];
        for (micros, text) in table {
            assert_eq!(show_latency(Duration::from_micros(micros)), text);
        }
    }
}
