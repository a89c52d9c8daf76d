//! Every link of every page leads somewhere.

use crate::page::{Page, root};
use std::path::Path;

/// Every page that is part of the project, by its path from the root.
pub(crate) fn pages() -> Vec<String> {
    files(".md")
}

/// Every file of the project whose name ends like this, by its path from the root.
pub(crate) fn files(ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)
            .expect("a folder of the project")
            .map(|entry| entry.expect("an entry of a folder"))
        {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(ending) {
                let inner = path.strip_prefix(root()).expect("a path below the root");
                found.push(inner.to_string_lossy().into_owned());
            }
        }
    }
    found
}

#[test]
fn every_link_of_every_page_leads_somewhere() {
    let pages = pages();
    assert!(pages.len() > 5, "{pages:?}");
    let mut broken = Vec::new();
    for page in pages.iter().map(|path| Page::open(path)) {
        for link in page.links() {
            // Names of Rust items are for rustdoc, which looks after them itself.
            let elsewhere = link.contains("://") || link.starts_with("mailto:") || link.contains("::");
            if !elsewhere && !leads_somewhere(&page, &link) {
                broken.push(format!("{}: {link}", page.path));
            }
        }
    }
    assert!(broken.is_empty(), "these lead nowhere:\n{}", broken.join("\n"));
}

/// Whether a link of a page names a file that is there, and if it is a page, a heading of it.
pub(crate) fn leads_somewhere(page: &Page, link: &str) -> bool {
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let target = match file {
        "" => Path::new(&page.path).to_path_buf(),
        _ => Path::new(&page.path).parent().expect("a file is in a folder").join(file),
    };
    let Ok(whole) = root().join(&target).canonicalize() else { return false };
    let Some(anchor) = anchor else { return true };
    let Ok(inner) = whole.strip_prefix(root()) else { return false };
    whole.is_file() && Page::open(&inner.to_string_lossy()).anchors().iter().any(|known| known == anchor)
}

#[test]
fn a_link_to_nowhere_is_found() {
    let page = Page::open("module/COMMANDS.md");
    assert!(leads_somewhere(&page, "#errors"));
    assert!(leads_somewhere(&page, "../README.md#fences"));
    assert!(!leads_somewhere(&page, "#no-such-part"));
    assert!(!leads_somewhere(&page, "NOWHERE.md"));
    assert!(!leads_somewhere(&page, "../README.md#no-such-part"));
}

#[test]
fn what_a_page_says_of_this_checkout_is_in_it() {
    // A page that names a script by its path must not outlive the script.
    for path in pages() {
        let page = Page::open(&path);
        for word in page.text.split(|c: char| !(c.is_alphanumeric() || "./_-".contains(c))) {
            let Some(script) =
                word.trim_end_matches('.').strip_prefix("./").filter(|w| w.starts_with("scripts/"))
            else {
                continue;
            };
            assert!(root().join(script).exists(), "{path} speaks of {word}");
        }
    }
}
