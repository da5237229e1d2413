//! The commands: parse, call the library, print. One file a family.
//!
//! Results go to standard output, everything else to standard error. The exit status is 0 when it was
//! done, 1 when the node or the agent answered an error (also an `ok` without a good signature),
//! 2 for wrong usage and for what fails on this machine, 3 when the node could not be reached or
//! something was not done in time, whichever side noticed.

mod agents;
mod args;
mod ask;
pub mod capsule;
pub mod carrier;
mod ctl;
mod detach;
mod fault;
mod follow;
mod grants;
mod help;
mod identity;
mod journal;
mod nodes;
mod out;
mod outbox;
mod pretty;
mod raw;
mod run;
mod schedules;
mod secrets;
mod selftest;
mod send;
mod server;
mod status;
mod temporary;
mod tls;
mod token;
mod tree;

use crate::node::config::nearest;
use args::{flag, opt, Command, Opt, Wish};
use fault::Fault;
use std::ffi::OsString;
use std::process::ExitCode;

const AS: &[Opt] = &[secrets::AS];
const JSON: &[Opt] = &[flag("json", "print one compact line of JSON (errors too, on standard error)")];
const WAIT: &[Opt] = &[opt("timeout", "S", "how many seconds to wait for the answer (30)")];
const HOOK: &[Opt] = &[opt("timeout", "S", "how many seconds the agent gets (the node's limit, 300)")];
const ACTIVATE: Opt = opt("activate", "JSON", "what on_activate is given ({})");
const TOKEN: Opt =
    opt("token", "F", "a capability token that it carries in its metadata (- for standard input)");
const SENDER: Opt = opt("sender", "S", "who it is from: an operator's or agent's name (admin)");

/// Every command, in the order of the help.
const COMMANDS: &[Command] = &[
    Command {
        name: "server",
        summary: "Runs a node, until SIGTERM or Ctrl-C.",
        words: &["[HOST:PORT]"],
        options: &[&[
            opt("config", "F", "a configuration file; HOST:PORT and the options below outrank it"),
            opt("name", "N", "the node's name (the machine's and the port)"),
            opt("data-root", "D", "what agents may read (data in the state directory)"),
            opt("state-dir", "D", "where the node keeps its state ($XDG_STATE_HOME/agentcontainer/NAME)"),
            opt("secret-file", "F", "a file with the admin secret (else one is made and kept in the state directory)"),
            flag("ruthless", "a node without a manager"),
            opt("log-file", "F", "where the log goes (standard error)"),
            opt("log-format", "plain|json", "how an event is written (plain)"),
            flag("detach", "run without a terminal; return when the node listens"),
            flag("if-not-running", "status 0, without a word, where a node runs on the state directory"),
            opt("for", "TIME", "end after this time: 30s, 10m, 2h"),
            flag("restored", "the state directory is a backup: its agents are suspended until ctl start"),
            flag(detach::OPTION, ""),
        ]],
        notes: "Without HOST:PORT and --config it listens on 127.0.0.1:7000. Without a secret in --config or\n\
                --secret-file, AGENTCONTAINER_SECRET is the admin's, if it is set.\n\
                \n\
                Signals: SIGTERM and SIGINT end it (no new connections, running hooks get shutdown_grace_s, 10, status\n\
                0); a second one ends it at once. SIGHUP reloads --config. SIGUSR1 opens --log-file anew.\n\
                A node that was detached keeps its log in node.log in the state directory, unless told otherwise.",
        example: "agentcontainer server 127.0.0.1:7000 --data-root ./documents",
        run: server::run,
    },
    Command {
        name: "status",
        summary: "Says whether a node runs: status 0 if it does and answers, 3 if not.",
        words: &["[HOST:PORT]"],
        options: &[
            &[
                opt("name", "N", "the node of this name that this user runs here"),
                opt("state-dir", "D", "the node that keeps its state there"),
                opt("secret-file", "F", "a file with the secret to ask with (the state directory knows it)"),
                opt("config", "F", "the node's configuration file, which names it"),
                opt("timeout", "S", "how many seconds the node has to answer (3)"),
                flag("pid", "print the number of its process alone, or nothing where none runs"),
            ],
            AS,
            tls::OPTIONS, JSON,
        ],
        notes: "Without a word it is the one node that this user runs here. Whether one runs is decided by the lock of\n\
                its state directory: what a killed node left behind misleads nobody. The line begins with running,\n\
                starting, not-answering or not-running.",
        example: "agentcontainer status 127.0.0.1:7000 || echo down",
        run: status::run,
    },
    Command {
        name: "run",
        summary: "Runs an agent on a temporary node of its own: the quickest way to develop one.",
        words: &["AGENT.py"],
        options: &[
            &[
                ACTIVATE,
                Opt { name: "message", value: Some("JSON"), many: true, help: "then send it this message" },
                opt("data-root", "D", "what the agent may read (an empty directory)"),
                opt("port", "P", "the node's port (any free one)"),
                opt("timeout", "S", "how many seconds each hook gets (300)"),
                opt("python", "P", "the interpreter (python3)"),
            ],
            JSON,
        ],
        notes: "Prints what on_activate and then each on_message return. What the agent logs and prints goes to\n\
                standard error. An exception is shown with the agent's own lines, and ends the run with status 1.",
        example: "agentcontainer run agents/basic/ping.py --activate '\"hello\"' --message '{\"n\": 1}'",
        run: run::run,
    },
    Command {
        name: "selftest",
        summary: "Tries the sandbox on this machine: attempts that must be stopped, ordinary things that must work.",
        words: &[],
        options: &[&[opt("python", "P", "the interpreter (python3)")], JSON],
        notes: "Starts a node of its own. Status 0 only if everything is as it should be at the level that it tells; what\n\
                that level cannot stop is shown as open and not tried. docs/SECURITY.md says what the layers are.",
        example: "agentcontainer selftest --json",
        run: selftest::run,
    },
    Command {
        name: "send",
        summary: "Sends an agent on a journey that begins at a node, and waits until it is home again.",
        words: &["AGENT.py", "HOST:PORT"],
        options: &[
            &[
                ACTIVATE,
                opt("stage-host", "H", "the address of this machine as the nodes reach it"),
                opt("timeout", "S", "how many seconds the journey may take (60)"),
                TOKEN,
                flag("queue", "leave it to the outbox of the node on this machine, until HOST:PORT is seen"),
                outbox::NODE,
            ],
            secrets::OPTIONS,
            tls::OPTIONS, JSON,
        ],
        notes: "Opens a stage: a temporary node to which the agent returns with ctx.return_to_stage(). Where no\n\
                admin secret is found for the node, the agent's own signature is its ticket. At a terminal each\n\
                hop is shown as it is seen. An agent that is not back in time: status 3, and what the first node\n\
                answered, if it did, on standard output. With --queue the node on this machine is the stage and keeps\n\
                the agent until the first node is seen: its transfer is printed, and nothing waited for.",
        example: "agentcontainer send agents/demo/visit_and_go_back.py 127.0.0.1:7000 --timeout 60",
        run: send::run,
    },
    Command {
        name: "deploy",
        summary: "Puts an agent on a node, and activates it.",
        words: &["AGENT.py", "HOST:PORT"],
        options: &[
            &[
                ACTIVATE,
                flag("no-activate", "only register it"),
                flag("fresh", "forget the memory of the agent that has its place (with a capsule: its files, too)"),
                opt("metadata", "JSON", "an object merged into the agent's metadata"),
                TOKEN,
                flag("queue", "leave it to the outbox of the node on this machine, until HOST:PORT is seen"),
                outbox::NODE,
            ],
            HOOK,
            secrets::OPTIONS,
            AS,
            tls::OPTIONS, JSON,
        ],
        notes: "Prints what on_activate returned; with --json the node's whole result. An agent that raises there\n\
                stays on the node all the same; the status is 1. With --queue it goes on its own signature, whenever\n\
                the node is seen, and its transfer is printed: see outbox.",
        example: "agentcontainer deploy agents/demo/travelling_scout.py 127.0.0.1:7000 --activate '{\"query\": \"chess\"}'",
        run: agents::deploy,
    },
    Command {
        name: "invoke",
        summary: "Sends a message to an agent, and prints what it returns.",
        words: &["ID", "HOST:PORT"],
        options: &[
            &[opt("message", "JSON", "the message ({})")],
            HOOK,
            secrets::OPTIONS,
            AS,
            tls::OPTIONS, JSON,
        ],
        notes: "With --json the node's whole result: {\"agent_id\",\"result\"}.",
        example: "agentcontainer invoke travelling-scout 127.0.0.1:7001 --message '{\"query\": \"opening\"}'",
        run: agents::invoke,
    },
    Command {
        name: "list",
        summary: "Lists the agents that live on a node.",
        words: &["HOST:PORT"],
        options: &[WAIT, secrets::OPTIONS, AS, tls::OPTIONS, JSON],
        notes: "",
        example: "agentcontainer list 127.0.0.1:7000",
        run: agents::list,
    },
    Command {
        name: "remove",
        summary: "Removes an agent and its files from a node.",
        words: &["ID", "HOST:PORT"],
        options: &[WAIT, secrets::OPTIONS, AS, tls::OPTIONS, JSON],
        notes: "",
        example: "agentcontainer remove network-mapper 127.0.0.1:7000",
        run: agents::remove,
    },
    Command {
        name: "dispatch",
        summary: "Has a node send one of its agents, or a copy of it, to another node.",
        words: &["ID", "DESTINATION", "HOST:PORT"],
        options: &[
            &[
                opt("mode", "move|clone", "whether the agent goes, or a copy of it (move)"),
                ACTIVATE,
                flag("queue", "if DESTINATION can't be reached, try again until it can"),
            ],
            HOOK,
            secrets::OPTIONS,
            AS,
            tls::OPTIONS, JSON,
        ],
        notes: "DESTINATION is the name of a node in the tree, or HOST:PORT. Prints the destination's answer.",
        example: "agentcontainer dispatch ping department-a 127.0.0.1:7000 --mode clone",
        run: agents::dispatch,
    },
    Command {
        name: "outbox",
        summary: "Shows what waits in a node's outbox, tries it at once, or gives it up.",
        words: &["list|retry|cancel", "[TRANSFER]"],
        options: &[&[outbox::NODE], WAIT, secrets::OPTIONS, tls::OPTIONS, JSON],
        notes: "A transfer that reached nobody is cancelled here; of another, only its destination can say that it\n\
                will not take the agent, and is asked. A move that is cancelled leaves the agent where it is.",
        example: "agentcontainer outbox list --node 127.0.0.1:7000",
        run: outbox::run,
    },
    Command {
        name: "grant",
        summary: "Grants an agent a group of calls, one call, or a capability.",
        words: &["ID", "GRANT", "HOST:PORT"],
        options: &[
            &[opt("scope", "JSON", "what it is narrowed to, an object")],
            WAIT,
            secrets::OPTIONS,
            tls::OPTIONS, JSON,
        ],
        notes: "GRANT is a group (files, process, http, mobility, federation, messaging, sockets, management), one of their\n\
                calls, ManageRootAgent, or quotas, whose --scope says how much it may use: {\"cpu_s\":10,\"state_bytes\":...,\n\
                \"calls_per_minute\":...,\"read_bytes_per_minute\":...,\"http_bytes_per_hour\":...,\n\
                \"memory_bytes\":...,\"open_files\":...,\"file_bytes\":...}, 0 for no bound.\n\
                Scopes: {\"paths\":[...]} of read_file and search_files, {\"commands\":[...]} of run,\n\
                {\"hosts\":[...],\"methods\":[...]} of http_request, {\"destinations\":[...]} of clone and move. The first grant\n\
                of an agent begins with what it has by how it came. It counts from the next call on.",
        example: "agentcontainer grant http-probe http 127.0.0.1:7000 --scope '{\"hosts\": [\"127.0.0.1:8080\"]}'",
        run: grants::grant,
    },
    Command {
        name: "revoke",
        summary: "Takes a group of calls, one call, or a capability from an agent.",
        words: &["ID", "GRANT", "HOST:PORT"],
        options: &[WAIT, secrets::OPTIONS, tls::OPTIONS, JSON],
        notes: "One call out of a granted group leaves the group's others. An agent whose process runs with what is taken\n\
                (process, sockets, ManageRootAgent) is ended and begins again without it.",
        example: "agentcontainer revoke ping process 127.0.0.1:7000",
        run: grants::revoke,
    },
    Command {
        name: "grants",
        summary: "Shows what agents are granted on a node.",
        words: &["HOST:PORT"],
        options: &[WAIT, secrets::OPTIONS, tls::OPTIONS, JSON],
        notes: "",
        example: "agentcontainer grants 127.0.0.1:7000",
        run: grants::grants,
    },
    Command {
        name: "token",
        summary: "Makes, shows and narrows capability tokens, which agents carry; revokes them on a node.",
        words: &["issue|show|attenuate|revoke|revoked", "[FILE|ID|HOST:PORT]", "[HOST:PORT]"],
        options: &[
            &[
                opt("agent", "ID", "issue: which agent it is for"),
                Opt {
                    name: "grant",
                    value: Some("GRANT"),
                    many: true,
                    help: "issue, attenuate: a group of calls, one call, or ManageRootAgent (see grant)",
                },
                Opt {
                    name: "scope",
                    value: Some("GRANT=JSON"),
                    many: true,
                    help: "issue, attenuate: grants that, narrowed to this (see grant)",
                },
                Opt {
                    name: "node",
                    value: Some("NAME"),
                    many: true,
                    help: "issue, attenuate: a node that it counts on (every one that trusts its key)",
                },
                opt("ttl", "TIME", "issue, attenuate: how long it counts: 30m, 1h, 48h (1h; at most a year)"),
                opt("key", "F", "issue: the private key to sign with, as capsule keys generate makes it"),
            ],
            WAIT,
            secrets::OPTIONS,
            tls::OPTIONS,
            JSON,
        ],
        notes: "issue and attenuate print the token, one line, for --token of deploy and send; a node takes it whose token_keys\n\
                have the key. show FILE checks its chain and says what it grants. attenuate FILE needs no key: it adds a block\n\
                that narrows, and nothing can widen it again. revoke ID HOST:PORT: the token, or a block of one, and all that\n\
                was made from it, count no more on that node, at once; revoked HOST:PORT lists them.",
        example: "agentcontainer token issue --agent scout --grant process --node lab --ttl 1h --key ops.key >scout.token",
        run: token::run,
    },
    Command {
        name: "schedule",
        summary: "Shows the schedules of a node.",
        words: &["list", "HOST:PORT"],
        options: &[WAIT, secrets::OPTIONS, tls::OPTIONS, JSON],
        notes: "The manager makes and changes them: agentcontainer invoke ruth HOST:PORT --message '{\"do\": \"help\"}'.",
        example: "agentcontainer schedule list 127.0.0.1:7000",
        run: schedules::run,
    },
    Command {
        name: "identity",
        summary: "Makes, lists, rotates and revokes identities at the root of a tree, and hands them down.",
        words: &["create|list|rotate|revoke|push", "[ID]", "[HOST:PORT]"],
        options: &[
            &[
                opt("source", "AGENT.py", "the agent's source, whose AGENT_SECRET is its secret"),
                opt("secret-file", "F", "a file with the agent's secret (list, revoke, push: with the admin's)"),
                opt("public-key", "F", "the key that the agent's capsules are signed with"),
                opt("overlap", "TIME", "rotate: end by itself after this time: 10m, 24h"),
                flag("end", "rotate: only the new secret counts from now on"),
                opt("expires", "TIME", "push: how long the snapshot is good (168h)"),
                opt("admin-secret-file", "F", "a file with the admin's secret"),
                opt("config", "F", "the node's configuration file, which names it"),
                opt("state-dir", "D", "the node's state directory, which knows it"),
            ],
            WAIT,
            tls::OPTIONS, JSON,
        ],
        notes: "create makes one once; a second call changes nothing and says so. Only the SHA-256 of a secret leaves this\n\
                machine. rotate: the old secret and the new one count until the rotation ends. A revoked one stays so.\n\
                push signs a snapshot with the root's key and hands it to the nodes below, which have that key as\n\
                identity_root_key (create and list show it). A node that is away gets it when it is back. list and push\n\
                take HOST:PORT alone.",
        example: "agentcontainer identity create scout 127.0.0.1:7000 --source agents/demo/travelling_scout.py",
        run: identity::run,
    },
    Command {
        name: "ctl",
        summary: "Starts, kills, restarts, rebuilds the agents of a node on this machine; no secret is needed.",
        words: &["list|status|start|kill|restart|rebuild", "[ID]"],
        options: &[
            &[
                opt("name", "N", "the node of this name that this user runs here"),
                opt("state-dir", "D", "the node that keeps its state there"),
                flag("all", "start: every agent that is suspended"),
            ],
            HOOK,
            JSON,
        ],
        notes: "A killed agent stays stopped, also when the node is started anew, until start, restart or rebuild. restart: a\n\
                new process, with its memory. rebuild: agents/ID/config/agent.py afresh, with the agent's memory and files.\n\
                start also registers and activates an agent that is declared there. Speaks to admin.sock in the state\n\
                directory, as the user of the node or root.",
        example: "agentcontainer ctl list",
        run: ctl::run,
    },
    Command {
        name: "roster",
        summary: "Lists whom a node has state or configuration of, and how they stand.",
        words: &["HOST:PORT"],
        options: &[WAIT, secrets::OPTIONS, AS, tls::OPTIONS, JSON],
        notes: "The node's own roster (meta/topology.json), agents that are declared and never ran among them. Who exists in\n\
                the swarm: identity list, at the root.",
        example: "agentcontainer roster 127.0.0.1:7000",
        run: identity::roster,
    },
    Command {
        name: "describe",
        summary: "Says what a node is, has and allows.",
        words: &["HOST:PORT"],
        options: &[WAIT, secrets::OPTIONS, AS, tls::OPTIONS, JSON],
        notes: "",
        example: "agentcontainer describe 127.0.0.1:7000",
        run: nodes::describe,
    },
    Command {
        name: "tree",
        summary: "Draws the tree of nodes, as a node is configured to see it.",
        words: &["HOST:PORT"],
        options: &[
            &[flag("live", "ask each node whether it is there, and who lives on it")],
            WAIT,
            secrets::OPTIONS,
            AS,
            tls::OPTIONS, JSON,
        ],
        notes: "With --live each node is asked with the secret that is given, or else with the one found for it.",
        example: "agentcontainer tree 127.0.0.1:7000 --live",
        run: tree::run,
    },
    Command {
        name: "call",
        summary: "Sends a message of any type, and prints the result.",
        words: &["TYPE", "HOST:PORT"],
        options: &[
            &[
                opt("payload", "JSON", "the payload, an object ({})"),
                SENDER,
                opt("timeout", "S", "how many seconds to wait for the answer (300)"),
            ],
            secrets::OPTIONS,
            AS,
            tls::OPTIONS, JSON,
        ],
        notes: "",
        example: "agentcontainer call invoke_agent 127.0.0.1:7000 --payload '{\"agent_id\": \"ping\", \"message\": 1}'",
        run: raw::call,
    },
    Command {
        name: "sign",
        summary: "Prints a signed message, one line, to be sent by other means.",
        words: &["TYPE"],
        options: &[
            &[
                opt("payload", "JSON", "the payload, an object ({})"),
                SENDER,
                flag("keep-alive", "ask the node to keep the connection open"),
                opt("nonce", "N", "the nonce, which the answer repeats (random)"),
                opt("node", "HOST:PORT", "which node's secret, where several run on this machine"),
            ],
            secrets::OPTIONS,
            AS,
        ],
        notes: "The line is good for a few minutes (clock_skew_s of the node), and once.",
        example: "agentcontainer sign list_agents | nc -N 127.0.0.1 7000 | agentcontainer check",
        run: raw::sign,
    },
    Command {
        name: "check",
        summary: "Reads an answer line from standard input and says whether its signature is good.",
        words: &[],
        options: &[
            &[
                opt("nonce", "N", "the request's nonce, which the answer must repeat"),
                opt("node", "HOST:PORT", "which node's secret, where several run on this machine"),
                SENDER,
            ],
            secrets::OPTIONS,
            AS,
            JSON,
        ],
        notes: "Status 0 if it is, 1 if not. Without --nonce a genuine answer to another request passes, too.",
        example: "agentcontainer check --nonce n1 <answer.json",
        run: raw::check,
    },
    Command {
        name: "journal",
        summary: "Checks and shows a node's audit journal, from its files on this machine.",
        words: &["verify|show|tail", "[HOST:PORT]"],
        options: &[
            &[
                opt("name", "N", "the node of this name that this user runs here"),
                opt("state-dir", "D", "the node's state directory (that of the node which listens at HOST:PORT)"),
                opt("agent", "ID", "show: only what is about this agent"),
                opt("kind", "K", "show: only this kind: accepted, refused, deploy, move, call …"),
                opt("since", "TIME", "show: from then on: 2026-05-09T00:00:00Z, 2026-05-09, or an age: 90s, 10m, 2h, 3d"),
                opt("n", "N", "tail: how many lines (10)"),
                flag("follow", "tail: go on with what is added, until Ctrl-C"),
            ],
            &[flag("json", "print the lines as they stand; verify: one line of JSON")],
        ],
        notes: "Works whether the node runs or not; without HOST:PORT, --name and --state-dir it is the only node of this user.\n\
                verify: status 0, or 1 and the first line that was changed, dropped or swapped, or a tail cut off.",
        example: "agentcontainer journal verify 127.0.0.1:7000",
        run: journal::run,
    },
];

/// Does what the arguments (without the program's name) ask for.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut arguments: Vec<OsString> = arguments.collect();
    let as_json =
        arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json");
    let name = match arguments.is_empty() {
        true => String::new(),
        false => arguments.remove(0).to_string_lossy().into_owned(),
    };
    if let Some(status) = capsule_command(&name, &arguments) {
        return ExitCode::from(u8::try_from(status).unwrap_or(2));
    }
    let (about, done) = match COMMANDS.iter().find(|command| command.name == name) {
        Some(command) => (command.name, carry_out(command, arguments)),
        None => ("", other(&name, &arguments)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            fault.tell(about, as_json);
            ExitCode::from(fault.status())
        }
    }
}

/// The commands about capsules and carriers have a parser and a help of their own: scripts that were written for
/// another program run with them.
fn capsule_command(name: &str, arguments: &[OsString]) -> Option<i32> {
    let rest = arguments.iter().cloned();
    Some(match name {
        "capsule" => capsule::main(rest),
        "carrier" => carrier::main(rest),
        "trust" => capsule::main(std::iter::once(name.into()).chain(rest)),
        "pack-agent" => capsule::pack_agent::main(rest),
        _ => return None,
    })
}

fn carry_out(command: &'static Command, arguments: Vec<OsString>) -> Result<(), Fault> {
    match command.read(arguments)? {
        Wish::Help => out::line(help::command(command).trim_end()),
        Wish::Do(given) => (command.run)(&given),
    }
}

fn other(name: &str, arguments: &[OsString]) -> Result<(), Fault> {
    match name {
        "" => {
            out::note_raw(help::overview(COMMANDS).trim_end());
            Err(Fault::Status(fault::LOCAL))
        }
        "--version" | "-V" => out::line(concat!("agentcontainer ", env!("CARGO_PKG_VERSION"))),
        "help" | "--help" | "-h" => match arguments.first().map(|word| word.to_string_lossy()) {
            None => out::line(help::overview(COMMANDS).trim_end()),
            Some(word) => match COMMANDS.iter().find(|command| command.name == word) {
                Some(command) => out::line(help::command(command).trim_end()),
                None => Err(unknown(&word)),
            },
        },
        _ => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> Fault {
    let hint = match nearest(name, COMMANDS.iter().map(|command| command.name)) {
        Some(near) => format!("; the nearest is {near:?}"),
        None => String::new(), // whoever is told is pointed to --help anyway
    };
    Fault::Usage(format!("there is no command {name:?}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_of_every_command_names_what_it_takes() {
        for command in COMMANDS {
            let help = help::command(command);
            assert!(command.example.starts_with(&format!("agentcontainer {}", command.name)), "{help}");
            for option in command.shown_options() {
                assert!(help.contains(&args::dashed(option.name)), "{help}");
                let same = command.all_options().filter(|other| other.name == option.name).count();
                assert_eq!(same, 1, "{}: --{} stands there twice", command.name, option.name);
            }
            assert!(help.lines().all(|line| line.chars().count() <= 120), "{help}");
            assert!(help::overview(COMMANDS).contains(command.summary));
        }
    }

    #[test]
    fn a_wrong_command_line_says_what_is_wrong() {
        for (line, part) in [
            ("deplyo a.py x:1", "\"deploy\""),
            ("zzz", "there is no command \"zzz\""),
            ("deploy a.py h:1 --zzzzzzz {}", "no option --zzzzzzz"),
            ("invoke a 127.0.0.1:1 --message @", "--message @: the name"),
            ("invoke a 127.0.0.1:1 --message \u{feff}{}", "byte order mark"),
            ("server --data-root=", "--data-root is empty"),
            ("deploy a.py", "HOST:PORT is missing"),
            ("deploy a.py h:1 more", "\"more\""),
            ("deploy a.py h:1 --actviate {}", "--activate"),
            ("deploy a.py h:1 --activate", "needs a value: JSON"),
            ("deploy a.py h:1 --fresh --fresh", "twice"),
            ("deploy a.py h:1 --fresh=1", "fresh"),
            ("deploy a.py h:1 -x", "-x"),
            ("list nowhere", "no port"),
            ("invoke a 127.0.0.1:1 --message hello", "quotes of its own"),
            ("invoke a 127.0.0.1:1 --message {\"a\":1,\"a\":2}", "--message"),
            ("call list_agents 127.0.0.1:1 --payload []", "an object"),
            ("invoke a 127.0.0.1:1 --timeout 0", "positive number"),
            ("invoke a 127.0.0.1:1 --timeout nan", "positive number"),
            ("server --for 10", "30s, 10m or 2h, not \"10\""),
            ("server --for m", "30s, 10m or 2h"),
            ("server --for -1h", "30s, 10m or 2h"),
            ("server --for infh", "30s, 10m or 2h"),
            ("server --for 10é", "30s, 10m or 2h"),
            ("server --log-format xml", "plain or json, not \"xml\""),
            ("server --detachde", "the nearest is --detach"),
            ("status --name a --state-dir b", "give one of them"),
            ("schedule lst 127.0.0.1:1", "schedule does list, not \"lst\""),
            ("journal", "verify|show|tail is missing"),
            ("ctl", "list|status|start|kill|restart|rebuild is missing"),
            ("ctl stop a", "not \"stop\""),
            ("ctl kill", "needs an ID"),
            ("ctl kill --all", "--all goes with ctl start"),
            ("ctl list a", "takes no ID"),
            ("identity", "create|list|rotate|revoke|push is missing"),
            ("identity make a 127.0.0.1:1", "not \"make\""),
            ("identity create a 127.0.0.1:1", "--source AGENT.py or --secret-file F"),
            ("identity rotate a 127.0.0.1:1 --end --source x", "--end alone"),
            ("identity list a 127.0.0.1:1", "takes HOST:PORT alone"),
            ("identity revoke a", "HOST:PORT is missing"),
            ("identity push 127.0.0.1:1 --end", "identity push has no option --end"),
            ("journal vrify", "verify, show or tail, not \"vrify\""),
            ("journal verify --agent a", "journal verify has no option --agent"),
            ("journal show -n 3", "journal show has no option -n"),
            ("journal tail -n", "-n needs a value"),
            ("journal tail -n x --state-dir /nowhere", "-n needs a number"),
            ("journal show --since yesterday --state-dir /nowhere", "--since"),
            ("journal verify 127.0.0.1:1 --state-dir /nowhere", "one of them"),
        ] {
            let mut words = line.split(' ').map(OsString::from).collect::<Vec<_>>();
            let name = words.remove(0).into_string().unwrap();
            let done = match COMMANDS.iter().find(|command| command.name == name) {
                Some(command) => carry_out(command, words),
                None => other(&name, &words),
            };
            match done {
                Err(Fault::Usage(text)) => {
                    assert!(text.contains(part), "{line}: {text}");
                    assert!(!line.contains("zzz") || !text.contains("nearest"), "{line}: {text}");
                }
                done => panic!("{line}: {done:?}"),
            }
        }
    }
}
