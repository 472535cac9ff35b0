//! `vitrina completions SHELL`.

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::arguments::Arguments;
use crate::exit::Exit;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  vitrina completions bash > /etc/bash_completion.d/vitrina
  vitrina completions zsh > ~/.zfunc/_vitrina
  vitrina completions fish > ~/.config/fish/completions/vitrina.fish";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Exit {
    let mut script = Vec::new();
    generate(args.shell, &mut Arguments::command(), "vitrina", &mut script);
    output::print(String::from_utf8_lossy(&script).trim_end());
    Exit::Done
}
