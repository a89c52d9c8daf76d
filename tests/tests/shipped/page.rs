//! A parser for Markdown pages: headings, links and code blocks.

use std::path::{Path, PathBuf};

/// The root folder of the workspace. All paths of pages are relative to it.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the workspace folder exists")
}

/// Reads a file of the project. `path` is relative to the root.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A Markdown page of the checkout.
pub(crate) struct Page {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A code block: the lines between two lines of three backticks.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// The word after the backticks.
    pub(crate) language: String,
    /// The heading above the block.
    pub(crate) heading: String,
    pub(crate) text: String,
    /// The first line of the block's text in the page, counted from 1.
    pub(crate) line: usize,
}

impl Page {
    pub(crate) fn open(path: &str) -> Self {
        Self { path: path.into(), text: read(path) }
    }

    /// All code blocks, in the order of the page.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut found = Vec::new();
        let mut heading = String::new();
        let mut open: Option<Block> = None;
        for (index, line) in self.text.lines().enumerate() {
            match (open.take(), line.trim_start().strip_prefix("```")) {
                (Some(block), Some(_)) => found.push(block),
                (Some(mut block), None) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                    open = Some(block);
                }
                (None, Some(language)) => {
                    let (language, heading) = (language.trim().to_string(), heading.clone());
                    open = Some(Block { language, heading, text: String::new(), line: index + 2 });
                }
                (None, None) => {
                    if let Some(title) = title(line) {
                        heading = title.to_string();
                    }
                }
            }
        }
        assert!(open.is_none(), "{}: the last block is never closed", self.path);
        found
    }

    /// The lines outside code blocks.
    fn prose(&self) -> Vec<&str> {
        let mut inside = false;
        let outside = |line: &&str| {
            let edge = line.trim_start().starts_with("```");
            inside ^= edge;
            !inside && !edge
        };
        self.text.lines().filter(outside).collect()
    }

    /// What a link may have after `#`: the anchor that GitHub derives from each heading.
    pub(crate) fn anchors(&self) -> Vec<String> {
        self.prose().into_iter().filter_map(title).map(anchor).collect()
    }

    /// The targets of all links, in the order of the page.
    pub(crate) fn links(&self) -> Vec<String> {
        let prose = self.prose().join("\n");
        let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        targets.map(|(target, _)| target.to_string()).collect()
    }
}

fn title(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches('#');
    (rest.len() < line.len() && line.len() - rest.len() <= 6)
        .then(|| rest.strip_prefix(' ').map(str::trim))?
}

/// The anchor of a heading: its letters, digits, hyphens, underscores and spaces; lower case, spaces become hyphens.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[test]
fn a_page_is_parsed_into_anchors_links_and_blocks() {
    let text = "# A page\n\nSee [this](other.md#part).\n\n## Its `first` part, here\n\n```sh\n# no heading\nls\n```\n";
    let page = Page { path: "page.md".into(), text: text.into() };
    assert_eq!(page.anchors(), ["a-page", "its-first-part-here"]);
    assert_eq!(page.links(), ["other.md#part"]);
    let blocks = page.blocks();
    assert_eq!(blocks.len(), 1);
    assert_eq!((blocks[0].language.as_str(), blocks[0].text.as_str()), ("sh", "# no heading\nls\n"));
    assert_eq!((blocks[0].heading.as_str(), blocks[0].line), ("Its `first` part, here", 8));
}
