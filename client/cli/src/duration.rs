//! Durations as people write them: `30s`, `500ms`, `2m`.

use std::time::Duration;

/// Units, the longer spelling first.
const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads a number with a unit, down to a millisecond. A number alone could be meant in any unit, so only 0 is one.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let wrong = || format!("{text:?} is no duration such as 500ms, 30s, 2m or 1h");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let too_long = || format!("{text:?} is too long");
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let whole = whole.checked_mul(*factor).ok_or_else(too_long)?;
    if part.is_empty() || part.len() > 9 || !part.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(wrong());
    }
    let scale = 10_u64.pow(u32::try_from(part.len()).unwrap_or(9));
    let part = part.parse::<u64>().map_err(|_| wrong())? * factor / scale;
    Ok(Duration::from_millis(whole.checked_add(part).ok_or_else(too_long)?))
}

/// For people: two figures' worth, as `820ms`, `4.2s`, `3m20s`, `2h5m`.
pub(crate) fn show(duration: Duration) -> String {
    let ms = duration.as_millis();
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{}m{}s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{}h{}m", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

/// For people, of a time that a node took to answer.
pub(crate) fn show_latency(latency: Duration) -> String {
    let micros = latency.as_micros();
    match micros {
        0..10_000 => format!("{}.{:02}ms", micros / 1_000, micros % 1_000 / 10),
        10_000..100_000 => format!("{}.{}ms", micros / 1_000, micros % 1_000 / 100),
        _ => format!("{}ms", micros / 1_000),
    }
}

/// In whole milliseconds, for JSON.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write() {
        let table = [
            ("0", 0),
            ("500ms", 500),
            ("30s", 30_000),
            ("1.5s", 1_500),
            ("0.25s", 250),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1d", 86_400_000),
        ];
        for (text, ms) in table {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn what_means_nothing() {
        for text in
            ["", "30", "s", "-1s", "1 s", "1,5s", "1.s", ".5s", "1e3s", "30sec", "99999999999999999999s"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("18446744073709551615h").is_err());
    }

    #[test]
    fn what_people_read() {
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
