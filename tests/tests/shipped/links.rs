//! Every link of every page must have a target.

use crate::page::{Page, root};
use std::path::Path;

/// The paths of all Markdown pages of the project, relative to the root.
pub(crate) fn pages() -> Vec<String> {
    files(".md")
}

/// The paths of all files of the project whose name ends with `ending`, relative to the root.
pub(crate) fn files(ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)
            .expect("a folder of the project")
            .map(|entry| entry.expect("a readable entry"))
        {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if name.ends_with(ending) {
                let inner = path.strip_prefix(root()).expect("a path below the root");
                found.push(inner.to_string_lossy().into_owned());
            }
        }
    }
    found
}

#[test]
fn every_link_of_every_page_has_a_target() {
    let pages = pages();
    assert!(pages.len() > 5, "{pages:?}");
    let mut broken = Vec::new();
    for page in pages.iter().map(|path| Page::open(path)) {
        for link in page.links() {
            // rustdoc checks the links to Rust items.
            let elsewhere = link.contains("://") || link.starts_with("mailto:") || link.contains("::");
            if !elsewhere && !has_target(&page, &link) {
                broken.push(format!("{}: {link}", page.path));
            }
        }
    }
    assert!(broken.is_empty(), "links without a target:\n{}", broken.join("\n"));
}

/// Whether a link of a page names an existing file and, after `#`, an existing heading of that page.
pub(crate) fn has_target(page: &Page, link: &str) -> bool {
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let target = match file {
        "" => Path::new(&page.path).to_path_buf(),
        _ => Path::new(&page.path).parent().expect("a page is in a folder").join(file),
    };
    let Ok(whole) = root().join(&target).canonicalize() else { return false };
    let Some(anchor) = anchor else { return true };
    let Ok(inner) = whole.strip_prefix(root()) else { return false };
    whole.is_file() && Page::open(&inner.to_string_lossy()).anchors().iter().any(|known| known == anchor)
}

#[test]
fn a_link_without_a_target_is_detected() {
    let page = Page::open("module/COMMANDS.md");
    assert!(has_target(&page, "#errors"));
    assert!(has_target(&page, "../README.md#fences"));
    assert!(!has_target(&page, "#no-such-part"));
    assert!(!has_target(&page, "NOWHERE.md"));
    assert!(!has_target(&page, "../README.md#no-such-part"));
}

#[test]
fn every_script_that_a_page_names_exists() {
    for path in pages() {
        let page = Page::open(&path);
        for word in page.text.split(|c: char| !(c.is_alphanumeric() || "./_-".contains(c))) {
            let Some(script) =
                word.trim_end_matches('.').strip_prefix("./").filter(|w| w.starts_with("scripts/"))
            else {
                continue;
            };
            assert!(root().join(script).exists(), "{path} names {word}");
        }
    }
}
