//! Help, completions, manual pages, colours.

use crate::program::{Launcher, USAGE};
use crate::tmux::Tmux;
use redlock_tests::Fleet;
use std::process::Command;

const COMMANDS: [&str; 17] = [
    "run",
    "elect",
    "acquire",
    "extend",
    "release",
    "inspect",
    "ls",
    "break",
    "status",
    "exporter",
    "ui",
    "top",
    "bench",
    "doctor",
    "admit",
    "completions",
    "man",
];

#[test]
fn help_names_all_commands_and_exit_codes() {
    let redlock = Launcher::without_nodes();
    let help = redlock.run(&["--help"]).succeeds().stdout;
    for command in COMMANDS {
        assert!(help.contains(&format!("  {command} ")), "{command}");
        let about = redlock.run(&[command, "--help"]).succeeds().stdout;
        assert!(about.contains("Usage: redlock "), "{about}");
    }
    for code in ["110", "111", "112", "113", "114", "115", "116", "117", "118", "126", "127", "128+"] {
        assert!(help.contains(&format!("{code} ")), "{code} is not in {help}");
    }
    assert!(!help.contains("__watchdog"));
    let version = redlock.run(&["--version"]).succeeds().stdout;
    assert_eq!(version, concat!("redlock ", env!("CARGO_PKG_VERSION"), "\n"));
    redlock.run(&[]).exits(USAGE);
}

/// CLI.md documents every exit code and every command.
#[test]
fn the_guide_has_all_exit_codes_and_commands() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../CLI.md")).expect("a page");
    for code in
        ["0", "1", "110", "111", "112", "113", "114", "115", "116", "117", "118", "126", "127", "128 + n"]
    {
        assert!(page.contains(&format!("| {code} |")), "{code}");
    }
    COMMANDS.iter().for_each(|command| assert!(page.contains(&format!("redlock {command}")), "{command}"));
}

#[test]
fn completions_work_and_hide_the_watchdog() {
    let redlock = Launcher::without_nodes();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = redlock.run(&["completions", shell]).succeeds().stdout;
        for word in ["acquire", "kill-after"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        assert!(!script.contains("watchdog"), "{shell} completes the internal watchdog command");
    }
    let script = redlock.run(&["completions", "bash"]).stdout;
    std::fs::write(redlock.path().join("completions"), script).expect("a file");
    // bash completes with the script.
    let ask = "source ./completions; COMP_WORDS=(redlock rel); COMP_CWORD=1; _redlock redlock rel redlock; \
               echo \"${COMPREPLY[@]}\"";
    let said = Command::new("bash").args(["-c", ask]).current_dir(redlock.path()).output().expect("bash");
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "release", "{said:?}");
    redlock.run(&["completions", "tcsh"]).exits(USAGE);
}

#[test]
fn every_command_has_a_manual_page() {
    let redlock = Launcher::without_nodes();
    let page = redlock.run(&["man"]).succeeds().stdout;
    assert!(page.contains(".TH redlock 1") && page.contains("Exit codes"), "{page}");
    let written = redlock.run(&["man", "--out", "pages"]).succeeds().stdout;
    assert_eq!(written.lines().count(), COMMANDS.len() + 1, "{written}");
    for command in COMMANDS {
        let page = std::fs::read_to_string(redlock.path().join(format!("pages/redlock-{command}.1")));
        assert!(page.expect("a page").contains(&format!("redlock\\-{command}")), "{command}");
    }
    // The synopsis is the usage that --help shows.
    for (command, synopsis) in [
        (
            "run",
            "redlock run [OPTIONS] <RESOURCE> <COMMAND>...\nredlock run [OPTIONS] <RESOURCE>... \\-\\- <COMMAND>...",
        ),
        ("admit", "redlock admit [OPTIONS] <NODE>"),
        ("ls", "redlock ls [OPTIONS] [PATTERN]"),
    ] {
        let page = std::fs::read_to_string(redlock.path().join(format!("pages/redlock-{command}.1")));
        let page = page.expect("a page");
        assert!(page.contains(&format!(".SH SYNOPSIS\n.nf\n{synopsis}\n.fi\n.SH DESCRIPTION\n")), "{page}");
    }
    std::fs::write(redlock.path().join("file"), "").expect("a file");
    redlock.run(&["man", "--out", "file/pages"]).exits(115);
}

#[test]
fn only_terminals_get_colours_by_default() {
    let fleet = Fleet::start(1);
    let redlock = Launcher::of(&fleet);
    let escape = '\u{1b}';
    for arguments in
        [&["status"][..], &["inspect", "job"], &["top", "--once"], &["doctor"], &["run", "job", "--", "no"]]
    {
        assert!(!redlock.run(arguments).all().contains(escape), "{arguments:?}");
    }
    assert!(redlock.run(&["--color", "always", "status"]).stdout.contains(escape));
    assert!(!redlock.run(&["--color", "always", "--json", "status"]).stdout.contains(escape));
    let Some(tmux) = Tmux::start(redlock) else { return };
    let green = "\u{1b}[32m";
    let lines = [
        ("redlock status", true),
        ("NO_COLOR=1 redlock status", false),
        ("redlock --color never status", false),
        ("TERM=dumb redlock status", false),
    ];
    for (number, (line, is_colored)) in lines.into_iter().enumerate() {
        tmux.line(&format!("clear; {line}; echo do''ne {number}"));
        tmux.until(&format!("done {number}"));
        assert_eq!(tmux.colored_screen().contains(green), is_colored, "{line}");
    }
}

/// The words in quotes after each `before` in a source file.
fn words_after(source: &str, before: &str) -> Vec<String> {
    let word = |rest: &str| {
        let (_, rest) = rest.split_once('"')?;
        let (word, _) = rest.split_once('"')?;
        let is_reason =
            !word.is_empty() && word.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase());
        is_reason.then(|| word.to_owned())
    };
    source.split(before).skip(1).filter_map(word).collect()
}

#[test]
fn the_guide_lists_every_reason_of_an_error() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| std::fs::read_to_string(root.join(file)).expect("a source file");
    let library = read("../src/error.rs");
    let (_, library) = library.split_once("pub fn reason(").expect("the reasons of the library");
    let (library, _) = library.split_once("\n    }\n").expect("the end of the function");
    let mut reasons = words_after(library, "=>");
    let mut folders = vec![root.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let source = std::fs::read_to_string(path).expect("a source file");
                reasons.extend(words_after(&source, "ExitError::new("));
                reasons.extend(words_after(&source, "Self::new(Code::"));
            }
        }
    }
    reasons.sort();
    reasons.dedup();
    assert!(reasons.len() > 12, "{reasons:?}");
    let guide = read("../CLI.md");
    let (_, listed) = guide.split_once("\n`reason` is one of ").expect("the list");
    let (listed, _) = listed.split_once('.').expect("the end of the list");
    let mut listed: Vec<String> =
        listed.split(',').map(|word| word.trim().trim_matches('`').to_owned()).collect();
    listed.sort();
    assert_eq!(listed, reasons);
}
