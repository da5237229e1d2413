//! The command `agentcontainer`.

use agentcontainer::{agent::launcher, cli, supervise};
use std::process::ExitCode;

fn main() -> ExitCode {
    agentcontainer::settle_memory();
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    if cli::capsule::is_named(&name) {
        std::process::exit(cli::capsule::main(arguments));
    }
    if cli::carrier::is_named(&name) {
        std::process::exit(cli::carrier::main(arguments));
    }
    let first = arguments.next();
    // First of all: under these names the process is a part of a node, not a command.
    if first.as_deref().is_some_and(|first| first == supervise::ARGUMENT) {
        supervise::main();
    }
    if first.as_deref().is_some_and(|first| first == launcher::COMMAND) {
        std::process::exit(launcher::main(arguments));
    }
    cli::main(first.into_iter().chain(arguments))
}
