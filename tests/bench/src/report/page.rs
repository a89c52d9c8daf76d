//! Writes the tables of a page from the files of a run.
//!
//! It replaces the text between `<!-- bench: PART -->` or `<!-- bench: PART/SECTION -->` and `<!-- /bench -->`, and
//! nothing else.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use super::cell::shown;

const BEGIN: &str = "<!-- bench: ";
const END: &str = "<!-- /bench -->";

/// Fills a page from the files in the folder `results`. `charts` is the path of the charts in the links of the page.
///
/// # Errors
/// A text that describes the fault of the page or the files.
pub(crate) fn fill(page: &str, results: &Path, charts: &str) -> Result<String, String> {
    let load = |part: &str| -> Result<Value, String> {
        let file = results.join(format!("{part}.json"));
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))
    };
    fill_with(page, load, charts)
}

fn fill_with(
    page: &str,
    load: impl Fn(&str) -> Result<Value, String>,
    charts: &str,
) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after.split_once(" -->").ok_or("a mark without an end")?;
        let (_, after) = after.split_once(END).ok_or_else(|| format!("{name}: no end"))?;
        let (part, section) = name.split_once('/').unwrap_or((name, ""));
        let found = load(part)?;
        let text =
            if section.is_empty() { surroundings(&found) } else { one_section(&found, section, charts)? };
        let _ = write!(filled, "{before}{BEGIN}{name} -->\n{text}{END}");
        rest = after;
    }
    Ok(filled + rest)
}

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The server, the versions, the machine and its load while the part ran.
fn surroundings(part: &Value) -> String {
    let versions = part["versions"].as_object().into_iter().flatten();
    let versions: Vec<String> =
        versions.map(|(name, version)| format!("{name} {}", version.as_str().unwrap_or_default())).collect();
    format!(
        "{}; {}. {}. {}.\n",
        word(part, "server"),
        versions.join(", "),
        word(part, "machine"),
        word(part, "disturbance")
    )
}

/// Tables, remarks, verdicts and charts of a section.
fn one_section(part: &Value, name: &str, charts: &str) -> Result<String, String> {
    let section = items(&part["sections"]).find(|section| word(section, "name") == name);
    let section = section.ok_or_else(|| format!("{}: no section {name}", word(part, "part")))?;
    let mut text = format!("{}\n", word(section, "title"));
    for table in items(&section["tables"]) {
        text += "\n";
        let columns: Vec<&str> = items(&table["columns"]).filter_map(Value::as_str).collect();
        let _ = writeln!(text, "| {} |", columns.join(" | "));
        let _ = writeln!(text, "|---|{}", "---:|".repeat(columns.len().saturating_sub(1)));
        for row in items(&table["rows"]) {
            let cell = |cell: &Value| cell.as_str().or(cell["text"].as_str()).unwrap_or_default().to_owned();
            let _ = writeln!(text, "| {} |", items(row).map(cell).collect::<Vec<_>>().join(" | "));
        }
    }
    let remarks: Vec<&str> = items(&section["remarks"]).filter_map(Value::as_str).collect();
    if !remarks.is_empty() {
        let _ = writeln!(text, "\n{}", remarks.join("\n"));
    }
    if items(&section["verdicts"]).next().is_some() {
        text += "\n| figure | measured | aim | |\n|---|---:|---|---|\n";
        for verdict in items(&section["verdicts"]) {
            let number = |key: &str, decimals| shown(verdict[key].as_f64().unwrap_or(f64::NAN), decimals);
            let reached = if verdict["reached"] == Value::Bool(true) { "reached" } else { "**missed**" };
            let _ = writeln!(
                text,
                "| {} | {} | {} {} | {reached} |",
                word(verdict, "what"),
                number("figure", 3),
                word(verdict, "aim"),
                number("bound", 2)
            );
        }
    }
    for chart in items(&section["charts"]).filter_map(Value::as_str) {
        let _ = writeln!(text, "\n![{}]({charts}/{chart})", word(section, "title"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(_: &str) -> Result<Value, String> {
        Ok(json!({
            "part": "client", "server": "Redis 7", "machine": "a machine", "versions": { "redis": "1.0" },
            "disturbance": "Undisturbed",
            "sections": [{
                "name": "one", "title": "Some figures", "remarks": ["A remark."],
                "tables": [{ "columns": ["", "us"], "rows": [["ours", { "value": 1.25, "text": "1.3" }]] }],
                "verdicts": [{ "what": "it", "figure": 2.0, "aim": "at most", "bound": 1.0, "reached": false }],
                "charts": ["client-one.svg"],
            }],
        }))
    }

    #[test]
    fn filling_replaces_the_marked_text_and_nothing_else() {
        let page = "# Title\n<!-- bench: client -->\nold\n<!-- /bench -->\ntext\n<!-- bench: client/one --><!-- /bench -->\nend\n";
        let filled = fill_with(page, found, "charts").expect("a page in order");
        assert_eq!(
            filled,
            "# Title\n<!-- bench: client -->\nRedis 7; redis 1.0. a machine. Undisturbed.\n<!-- /bench -->\ntext\n\
             <!-- bench: client/one -->\nSome figures\n\n|  | us |\n|---|---:|\n| ours | 1.3 |\n\nA remark.\n\n\
             | figure | measured | aim | |\n|---|---:|---|---|\n| it | 2.000 | at most 1.00 | **missed** |\n\n\
             ![Some figures](charts/client-one.svg)\n<!-- /bench -->\nend\n"
        );
        assert_eq!(fill_with(&filled, found, "charts").as_deref(), Ok(filled.as_str()));
    }

    #[test]
    fn an_unknown_section_and_an_open_mark_are_errors() {
        assert!(fill_with("<!-- bench: client/two -->\n<!-- /bench -->", found, "").is_err());
        assert!(fill_with("<!-- bench: client -->\n", found, "").is_err());
        assert!(fill_with("<!-- bench: client", found, "").is_err());
    }
}
