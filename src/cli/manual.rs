//! What shells and `man` read about a command, from the declarations of its arguments; and its version.

use std::sync::LazyLock;

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::output::Output;
use crate::error::{Error, Result};
use crate::fold::gram::Kernel;

/// Prints a script with which a shell completes the command's words
///
///   headwater completions bash \
///     > ~/.local/share/bash-completion/completions/headwater
///   headwater completions zsh > ~/.zfunc/_headwater   (a folder of your $fpath)
///   headwater completions fish \
///     > ~/.config/fish/completions/headwater.fish
///
/// Both commands have it: headwater-reduce completions bash
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(super) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

impl CompletionsArgs {
    /// Prints the script of the command `C`.
    pub(super) fn run<C: CommandFactory>(&self) -> Result<()> {
        let mut command = C::command();
        let name = command.get_name().to_owned();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        Output::new().bytes(&script)
    }
}

/// Prints a page of the manual, in the form that `man` reads
///
///   headwater man > ~/.local/share/man/man1/headwater.1
///   headwater man prepare > ~/.local/share/man/man1/headwater-prepare.1
///
/// Both commands have it: headwater-reduce man gram
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ManArgs {
    /// The subcommand (default: the page of the whole command).
    subcommand: Option<String>,
}

impl ManArgs {
    /// Prints the page of the command `C`, or of its subcommand.
    pub(super) fn run<C: CommandFactory>(&self) -> Result<()> {
        // A page does not depend on the processor that it is made on.
        let mut command = C::command().version(env!("CARGO_PKG_VERSION"));
        command.build();
        if let Some(wanted) = &self.subcommand {
            command = command.find_subcommand(wanted).cloned().ok_or_else(|| {
                let names: Vec<_> = command
                    .get_subcommands()
                    .map(|found| format!("{:?}", found.get_name()))
                    .collect();
                Error::invalid(format!(
                    "expected a subcommand, one of {}, found {wanted:?}; name none for the page of the whole \
                     command",
                    names.join(", ")
                ))
            })?;
        }
        let mut page = Vec::new();
        let rendered = Man::new(command)
            .source(concat!("headwater ", env!("CARGO_PKG_VERSION")))
            .render(&mut page);
        rendered.map_err(|e| Error::invalid(format!("writing the page: {e}")))?;
        Output::new().bytes(&page)
    }
}

/// Returns the version, the commit where the build names one, and the kernels that this processor runs.
pub(super) fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let kernel = Kernel::available().next().unwrap_or(Kernel::Scalar);
        match option_env!("HEADWATER_COMMIT").filter(|commit| !commit.is_empty()) {
            Some(commit) => {
                format!("{} (commit {commit}, {kernel} kernels)", env!("CARGO_PKG_VERSION"))
            }
            None => format!("{} ({kernel} kernels)", env!("CARGO_PKG_VERSION")),
        }
    });
    &VERSION
}
