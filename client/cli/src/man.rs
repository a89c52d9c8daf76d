//! `redlock man`: prints manual pages.

use crate::args::{Cli, ManArgs};
use crate::exit::{Code, ExitError};
use crate::output::Printer;
use clap::{Command, CommandFactory};
use clap_mangen::Man as Page;

pub(crate) fn main(args: &ManArgs, output: &Printer) -> Result<Code, ExitError> {
    let mut command = Cli::command();
    command.build();
    let Some(folder) = &args.out else {
        output.line(page(command)?.trim_end())?;
        return Ok(Code::Success);
    };
    let unwritable = |error| ExitError::internal(format!("cannot write to {}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(unwritable)?;
    let visible = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
    let mut pages = vec![("redlock.1".to_owned(), command.clone())];
    for part in command.get_subcommands().filter(visible) {
        // As git names its pages: `man redlock-run`.
        let name = format!("redlock-{}", part.get_name());
        pages.push((format!("{name}.1"), part.clone().display_name(name)));
    }
    for (file, command) in pages {
        std::fs::write(folder.join(&file), page(command)?).map_err(unwritable)?;
        output.line(&folder.join(file).display().to_string())?;
    }
    Ok(Code::Success)
}

/// The manual page. The usage of `--help` replaces the synopsis of `clap_mangen`, which lacks the values of options,
/// `--` and repeated arguments.
fn page(mut command: Command) -> Result<String, ExitError> {
    let usage = command.render_usage().to_string();
    let mut text = Vec::new();
    let rendered = Page::new(command).render(&mut text);
    rendered.map_err(|error| ExitError::internal(format!("cannot render the manual page: {error}")))?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, rest) = text.split_once(".SH SYNOPSIS\n").unwrap_or((text.as_str(), ""));
    let rest = rest.find(".SH ").map_or("", |next| &rest[next..]);
    let usage = usage.trim_start_matches("Usage: ").lines().map(str::trim);
    // A hyphen without a backslash may be rendered as a dash, which a shell does not take.
    let lines: Vec<String> = usage.map(|line| line.replace('\\', "\\e").replace('-', "\\-")).collect();
    Ok(format!("{head}.SH SYNOPSIS\n.nf\n{}\n.fi\n{rest}", lines.join("\n")))
}
