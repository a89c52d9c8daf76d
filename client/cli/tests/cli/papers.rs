//! Help, completions, manual pages, colours.

use crate::program::{Launcher, USAGE};
use crate::tmux::Tmux;
use redlock_tests::Fleet;
use std::process::Command;

const COMMANDS: [&str; 13] = [
    "run",
    "acquire",
    "extend",
    "release",
    "inspect",
    "status",
    "exporter",
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
    for code in ["110", "111", "112", "113", "114", "115", "116", "117", "126", "127", "128+"] {
        assert!(help.contains(&format!("{code} ")), "{code} is not in {help}");
    }
    assert!(!help.contains("__watchdog"));
    let version = redlock.run(&["--version"]).succeeds().stdout;
    assert_eq!(version, concat!("redlock ", env!("CARGO_PKG_VERSION"), "\n"));
    redlock.run(&[]).exits(USAGE);
}

/// What the page of the program says about exit codes is what the program says.
#[test]
fn the_page_has_all_exit_codes_and_commands() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../CLI.md")).expect("a page");
    for code in ["0", "1", "110", "111", "112", "113", "114", "115", "116", "117", "126", "127", "128 + n"] {
        assert!(page.contains(&format!("| {code} |")), "{code}");
    }
    COMMANDS.iter().for_each(|command| assert!(page.contains(&format!("redlock {command}")), "{command}"));
}

#[test]
fn completions_are_made() {
    let redlock = Launcher::without_nodes();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = redlock.run(&["completions", shell]).succeeds().stdout;
        for word in ["acquire", "kill-after"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        assert!(!script.contains("watchdog"), "{shell} offers what is not for people");
    }
    let script = redlock.run(&["completions", "bash"]).stdout;
    std::fs::write(redlock.path().join("completions"), script).expect("a file");
    // A shell that can read them completes with them.
    let ask = "source ./completions; COMP_WORDS=(redlock rel); COMP_CWORD=1; _redlock redlock rel redlock; \
               echo \"${COMPREPLY[@]}\"";
    let said = Command::new("bash").args(["-c", ask]).current_dir(redlock.path()).output().expect("bash");
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "release", "{said:?}");
    redlock.run(&["completions", "tcsh"]).exits(USAGE);
}

#[test]
fn manual_pages_are_made() {
    let redlock = Launcher::without_nodes();
    let page = redlock.run(&["man"]).succeeds().stdout;
    assert!(page.contains(".TH redlock 1") && page.contains("Exit codes"), "{page}");
    let written = redlock.run(&["man", "--out", "pages"]).succeeds().stdout;
    assert_eq!(written.lines().count(), COMMANDS.len() + 1, "{written}");
    for command in COMMANDS {
        let page = std::fs::read_to_string(redlock.path().join(format!("pages/redlock-{command}.1")));
        assert!(page.expect("a page").contains(&format!("redlock\\-{command}")), "{command}");
    }
    std::fs::write(redlock.path().join("file"), "").expect("a file");
    redlock.run(&["man", "--out", "file/pages"]).exits(115);
}

#[test]
fn colours_are_for_terminals() {
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
