//! `--help`, from the table of commands.

use super::args::{dashed, Command, Opt};

/// What `agentcontainer --help` prints.
pub fn overview(commands: &[Command]) -> String {
    let width = commands.iter().map(|command| command.name.len()).max().unwrap_or(0);
    let mut text = String::from(
        "agentcontainer COMMAND [WORD]… [OPTION]…\n\nA node for mobile agents, and the commands to speak to one.\n\nCommands:\n",
    );
    for command in commands {
        text.push_str(&format!("  {:width$}  {}\n", command.name, command.summary));
    }
    text.push_str(
        "\nCapsules, exact payloads as signed text:\n  \
         capsule     pack, inspect, verify, unpack, scan, keys … (capsule --help)\n  \
         pack-agent  Packs an agent, with memory and files, into a capsule.\n  \
         trust       Issues and imports signed snapshots of a trust registry.\n  \
         carrier     encode, decode, train: bytes as text that a small model shapes (carrier --help).\n",
    );
    text.push_str(
        "\nagentcontainer COMMAND --help explains one; --version tells the version.\n\
         \n\
         Secrets: a command finds that of a node which the same user runs on this machine. For others:\n\
         --secret-file, --config, --state-dir, or AGENTCONTAINER_SECRET in the environment.\n\
         \n\
         JSON is given as it stands, as @FILE, or as - for standard input.\n\
         \n\
         Exit status: 0 done; 1 the node or the agent answered an error; 2 wrong usage, or something on\n\
         this machine; 3 not reached, or not in time.\n",
    );
    plain(text)
}

/// What `agentcontainer COMMAND --help` prints.
pub fn command(command: &Command) -> String {
    let mut text = format!("{}\n\n{}\n", command.usage(), command.summary);
    if !command.notes.is_empty() {
        text.push_str(&format!("\n{}\n", command.notes));
    }
    let options: Vec<(String, &Opt)> = command
        .shown_options()
        .map(|option| {
            let value = option.value.map(|value| format!(" {value}")).unwrap_or_default();
            (format!("{}{value}", dashed(option.name)), option)
        })
        .collect();
    let width = options.iter().map(|(shown, _)| shown.len()).max().unwrap_or(0);
    if !options.is_empty() {
        text.push_str("\nOptions:\n");
    }
    for (shown, option) in options {
        let many = if option.many { " (may be repeated)" } else { "" };
        text.push_str(&format!("  {shown:width$}  {}{many}\n", option.help));
    }
    text.push_str(&format!("\nExample:\n  {}\n", command.example));
    plain(text)
}

/// The one character that a plain terminal may not have.
fn plain(text: String) -> String {
    if super::out::speaks_utf8() {
        text
    } else {
        text.replace('…', "...")
    }
}
