//! `redlock man`: for `man`.

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
    let unwritable = |error| ExitError::internal(format!("{} cannot be written: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(unwritable)?;
    let visible = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
    let mut pages = vec![("redlock.1".to_owned(), command.clone())];
    for part in command.get_subcommands().filter(visible) {
        // As git has it: `man redlock-run`.
        let name = format!("redlock-{}", part.get_name());
        pages.push((format!("{name}.1"), part.clone().display_name(name)));
    }
    for (file, command) in pages {
        std::fs::write(folder.join(&file), page(command)?).map_err(unwritable)?;
        output.line(&folder.join(file).display().to_string())?;
    }
    Ok(Code::Success)
}

fn page(command: Command) -> Result<String, ExitError> {
    let mut text = Vec::new();
    let rendered = Page::new(command).render(&mut text);
    rendered.map_err(|error| ExitError::internal(format!("the page cannot be written: {error}")))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
