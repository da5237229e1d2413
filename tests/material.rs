//! Every agent under `agents/` on real nodes: the tree of `examples/`, with the fixtures as its files.

#[path = "support/mod.rs"]
mod support;
use agentcontainer::node::federation::TreeNode;
use agentcontainer::node::Keys;
use agentcontainer::sandbox::Wanted;
use serde_json::{json, Value};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use support::lab::{keys, until, Lab};

/// Which test runs which agent.
const COVERED: [(&str, fn()); 18] = [
    ("basic/inspect_primitives.py", inspect_primitives_shows_every_call_and_what_must_fail),
    ("basic/ping.py", ping_counts_and_remembers),
    ("basic/read_docs_preview.py", read_docs_preview_shows_first_lines),
    ("demo/return_with_file_hits.py", return_with_file_hits_searches_all_nodes_or_one_and_comes_home),
    ("demo/travelling_scout.py", the_scout_finds_chess_in_the_departments_and_leaves_clones),
    ("demo/visit_and_go_back.py", visit_and_go_back_tours_the_tree_and_comes_home),
    ("lab/http_probe.py", http_probe_times_answers_and_tells_failures),
    ("lab/network_mapper.py", network_mapper_tables_the_tree_and_what_is_missing),
    ("lab/payload_echo.py", payload_echo_shows_values_failures_and_timeouts),
    ("llm/chat_completion.py", chat_completion_talks_to_a_service_and_survives_its_failures),
    ("maintain/disk_report.py", disk_report_lists_disks),
    ("maintain/environment_probe.py", environment_probe_tells_what_is_there),
    ("maintain/process_snapshot.py", process_snapshot_lists_processes_with_and_without_ps),
    ("manager/ruth.py", ruth_manages_a_node),
    ("network/tree_walker.py", tree_walker_compares_the_tree_with_the_map),
    ("search/find_and_return.py", find_and_return_brings_passages_home),
    ("search/find_text.py", find_text_tells_hits_and_how_much_was_searched),
    ("search/list_files.py", list_files_lists_more_than_the_node_names),
];

#[test]
fn every_file_under_agents_is_run_by_a_test() {
    let mut there = Vec::new();
    for category in std::fs::read_dir(repository("agents")).unwrap().flatten() {
        for file in std::fs::read_dir(category.path()).unwrap().flatten() {
            let (category, file) = (category.file_name(), file.file_name());
            if file != "__pycache__" {
                there.push(format!("{}/{}", category.to_str().unwrap(), file.to_str().unwrap()));
            }
        }
    }
    there.sort();
    assert_eq!(there, COVERED.map(|(path, _)| path));
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn source(path: &str) -> String {
    std::fs::read_to_string(repository("agents").join(path)).unwrap()
}

/// The value of a line `NAME = "value"`.
fn manifest(source: &str, name: &str) -> String {
    let line = source.lines().find_map(|line| line.strip_prefix(&format!("{name} = \""))).unwrap();
    line.strip_suffix('"').unwrap().to_owned()
}

/// A node with a folder of fixtures.
fn node(name: &str, fixture: &str) -> Lab {
    Lab::with(Keys { data_root: Some(repository("fixtures").join(fixture)), ..keys(name) })
}

/// Deploys a file of `agents/` and returns what its `on_activate` returned.
fn deploy(lab: &Lab, path: &str, payload: Value) -> Value {
    let result = lab.ok("deploy_agent", json!({"source_code": source(path), "activate_payload": payload}));
    assert_eq!(result["status"], "active", "{path}: {result}");
    result["activate_result"].clone()
}

/// The services of these tests are on this machine, and such hosts must be named.
fn may_ask_this_machine(lab: &Lab, id: &str) {
    let scope = json!({"hosts": ["*", "127.0.0.1", "localhost"]});
    lab.ok("set_grant", json!({"agent_id": id, "grant": "http", "scope": scope}));
}

/// The tree of `examples/`: lab-c below department-a, both departments below root.
struct Tree {
    root: Lab,
    a: Lab,
    b: Lab,
    c: Lab,
}

impl Tree {
    fn start() -> Tree {
        let c = node("lab-c", "lab-c");
        let b = node("department-b", "department-b");
        let a = parent("department-a", vec![c.tree_node(vec![])]);
        let below_a = a.tree_node(vec![c.tree_node(vec![])]);
        let root = parent("root", vec![below_a, b.tree_node(vec![])]);
        Tree { root, a, b, c }
    }

    fn all(&self) -> [&Lab; 4] {
        [&self.root, &self.a, &self.b, &self.c]
    }
}

/// A node that knows its children and its own address, so that agents find back to it.
fn parent(name: &str, children: Vec<TreeNode>) -> Lab {
    let port = free_port();
    let tree = TreeNode { children, ..TreeNode::leaf(name, "127.0.0.1", port) };
    let data_root = Some(repository("fixtures").join(name));
    Lab::with(Keys { federation: Some(tree), listen_port: port, data_root, ..keys(name) })
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Sends a file of `agents/` to `first` as `agentcontainer send` does, with `home` as its stage, and
/// returns what its last activation there returned.
fn send(home: &Lab, first: &Lab, path: &str, payload: Value) -> Value {
    let source = source(path);
    let (id, secret) = (manifest(&source, "AGENT_ID"), manifest(&source, "AGENT_SECRET"));
    let stage = json!({"name": "home", "host": "127.0.0.1", "port": home.running.node.port()});
    let order = json!({"source_code": source, "mode": "move", "activate_payload": payload, "agent_metadata": {"stage": stage}});
    let answer = first.ask_as(&id, &secret, "receive_agent", &order.to_string());
    assert!(answer.is_ok(), "{path}: {}\n{}", answer.line(), first.logged());
    until(10, "it is home", || home.has(&id) && !first.has(&id));
    let listed = home.ok("list_agents", json!({}));
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    home.ok("remove_agent", json!({"agent_id": id}));
    listed[0]["last_result"].clone()
}

fn names<'a>(items: &'a Value, key: &str) -> Vec<&'a str> {
    items.as_array().unwrap().iter().map(|item| item[key].as_str().unwrap()).collect()
}

// ---- manager --------------------------------------------------------------------------------

#[test]
fn ruth_manages_a_node() {
    let lab = Lab::with(Keys { ruthless: false, ..keys("managed") });
    deploy(&lab, "basic/ping.py", json!(null));
    let order = json!({"do": "schedule", "agent": "ping", "message": "hello", "every": 3600, "id": "hourly"});
    assert_eq!(lab.invoke("ruth", order)["schedule"]["every"], 3600);
    lab.invoke("ruth", json!({"do": "fire", "id": "hourly"}));
    until(10, "ping was told", || {
        lab.invoke("ruth", json!({"do": "status", "agent": "ping"}))["agent"]["activations"] == 2
    });
    let roster = lab.invoke("ruth", json!({"do": "roster"}));
    assert_eq!(names(&roster["agents"], "agent_id"), ["ping", "ruth"]);
    assert_eq!(lab.invoke("ruth", json!({"do": "fly"}))["error"], "there is nothing called 'fly' to do");
}

// ---- basic ----------------------------------------------------------------------------------

#[test]
fn ping_counts_and_remembers() {
    let lab = node("root", "root");
    let first = deploy(&lab, "basic/ping.py", json!("hello"));
    assert_eq!(first, json!({"pong": "hello", "node": "root", "count": 1}));
    assert_eq!(lab.invoke("ping", json!({"n": 1}))["count"], 2);
    let again = deploy(&lab, "basic/ping.py", json!(null));
    assert_eq!(again, json!({"pong": null, "node": "root", "count": 3}), "a deployment keeps the memory");
}

#[test]
fn inspect_primitives_shows_every_call_and_what_must_fail() {
    let lab = node("root", "root");
    let shown = deploy(&lab, "basic/inspect_primitives.py", json!({"query": "assembly"}));
    assert_eq!((shown["agent_id"].as_str(), &shown["trace"]), (Some("inspect-primitives"), &json!([])));
    assert!(Path::new(shown["state_dir"].as_str().unwrap()).is_dir(), "{shown}");
    assert!(shown["capabilities"].as_array().unwrap().contains(&json!("search_files")));
    let calls = &shown["calls"];
    assert_eq!(calls["read_file outside"]["error"], "forbidden", "{calls}");
    assert_eq!(calls["run"]["value"]["stdout"], "hello from root\n");
    assert_eq!(calls["networks"]["value"]["name"], "root");
    assert_eq!(calls["stage"], json!({"value": null}));
    assert!(!calls["search_files"]["value"].as_array().unwrap().is_empty(), "{calls}");
    assert!(!calls["read_file"]["value"].as_str().unwrap().is_empty());
    for (name, outcome) in calls.as_object().unwrap() {
        assert!(name == "read_file outside" || outcome.get("value").is_some(), "{name}: {outcome}");
    }
    assert_eq!(lab.invoke("inspect-primitives", json!({}))["calls"]["run"], calls["run"]);
    until(5, "its line is in the log", || lab.logged().contains("primitives inspected calls=7"));
    // A node that runs no commands is shown as one.
    let fixtures = Some(repository("fixtures/root"));
    let strict = Lab::with(Keys { allow_subprocess: false, data_root: fixtures, ..keys("strict") });
    let shown = deploy(&strict, "basic/inspect_primitives.py", json!({}));
    assert_eq!(shown["calls"]["run"]["error"], "forbidden", "{shown}");
}

#[test]
fn read_docs_preview_shows_first_lines() {
    let lab = node("root", "root");
    let shown = deploy(&lab, "basic/read_docs_preview.py", json!({"lines": 2}));
    let previews = &shown["previews"];
    let paths = ["handbook/network-rules.md", "handbook/travel.md", "minutes-assembly.txt", "welcome.txt"];
    assert_eq!(names(previews, "path"), paths);
    let text = std::fs::read_to_string(repository("fixtures/root/welcome.txt")).unwrap();
    let wanted: Vec<&str> = text.lines().take(2).collect();
    assert_eq!(previews[3]["lines"], json!(wanted));
    assert_eq!(previews[3]["characters"], text.chars().count());
    let chosen = lab.invoke("read-docs-preview", json!({"paths": ["missing.md", "welcome.txt"]}));
    assert_eq!(chosen["previews"][0], json!({"path": "missing.md", "error": "not_found"}));
    assert_eq!(chosen["previews"][1]["path"], "welcome.txt");
}

// ---- demo -----------------------------------------------------------------------------------

#[test]
fn the_scout_finds_chess_in_the_departments_and_leaves_clones() {
    let tree = Tree::start();
    let report = deploy(&tree.root, "demo/travelling_scout.py", json!({"query": "chess"}));
    let below_a = &report["children"]["department-a"];
    let hits = [&report, below_a, &report["children"]["department-b"], &below_a["children"]["lab-c"]]
        .map(|report| (report["node"].as_str().unwrap(), report["hits"].as_array().unwrap().len()));
    assert_eq!(hits, [("root", 0), ("department-a", 4), ("department-b", 3), ("lab-c", 2)], "{report}");
    let hit = &below_a["hits"][1];
    assert_eq!((hit["path"].as_str(), hit["line"].as_u64()), (Some("club/chess-club.txt"), Some(1)));
    assert!(hit["preview"].as_str().unwrap().to_lowercase().contains("chess"), "{hit}");
    assert!(tree.all().iter().all(|node| node.has("travelling-scout")), "a clone stays in each");
    let kept = tree.a.invoke("travelling-scout", json!({}));
    assert_eq!(kept, json!({"node": "department-a", "query": "chess", "hits": below_a["hits"]}));
    let again = tree.a.invoke("travelling-scout", json!({"query": "opening"}));
    assert_eq!(again["hits"].as_array().unwrap().len(), 3, "{again}");
    assert_eq!(tree.a.invoke("travelling-scout", json!({}))["query"], "opening");
    until(5, "it is logged", || tree.c.logged().contains("scout searched hits=2 query=chess"));
}

#[test]
fn the_scout_reports_a_child_that_is_gone_or_fails() {
    let full = Lab::with(Keys { max_agents: 1, ..keys("full") });
    full.deploy(&support::lab::agent("first", "pass"));
    let root = parent("root", vec![full.tree_node(vec![]), TreeNode::leaf("gone", "127.0.0.1", free_port())]);
    let report = deploy(&root, "demo/travelling_scout.py", json!({"query": "chess"}));
    assert_eq!(report["children"]["gone"]["error"], "unreachable", "{report}");
    assert_eq!(report["children"]["full"]["error"], "rejected", "{report}");
    let result = root.ok(
        "deploy_agent",
        json!({"source_code": source("demo/travelling_scout.py"), "activate_payload": {}}),
    );
    assert!(
        result["activate_error"]["error"].as_str().unwrap().contains("the payload needs a \"query\""),
        "{result}"
    );
}

#[test]
fn visit_and_go_back_tours_the_tree_and_comes_home() {
    let tree = Tree::start();
    let home = Lab::start("home");
    for _ in 0..2 {
        let brought = send(&home, &tree.root, "demo/visit_and_go_back.py", json!({}));
        let visits = &brought["report"]["visits"];
        assert_eq!(names(visits, "node"), ["root", "department-a", "lab-c", "department-b"], "{brought}");
        assert_eq!(visits[0]["children"], json!(["department-a", "department-b"]));
        assert_eq!(visits[2]["files"], 3);
        assert_eq!(brought["report"]["unreachable"], json!({}));
        assert!(tree.all().iter().all(|node| !node.has("visit-and-go-back")), "it left nobody behind");
    }
    // Without a stage the tour ends where it began, and passes over a node that is gone.
    tree.c.running.stop(std::time::Duration::from_secs(2));
    let report = deploy(&tree.root, "demo/visit_and_go_back.py", json!({}))["report"].clone();
    assert_eq!(names(&report["visits"], "node"), ["root", "department-a", "department-b"], "{report}");
    assert_eq!(report["unreachable"], json!({"lab-c": "unreachable"}));
    let asked = tree.root.invoke("visit-and-go-back", json!({}));
    assert_eq!((asked["node"].as_str(), &asked["path"]), (Some("root"), &json!(["root"])));
}

#[test]
fn return_with_file_hits_searches_all_nodes_or_one_and_comes_home() {
    let tree = Tree::start();
    let home = Lab::start("home");
    let path = "demo/return_with_file_hits.py";
    let count = |brought: &Value| -> Vec<(String, usize)> {
        let hits = brought["report"]["hits"].as_object().unwrap();
        hits.iter().map(|(node, hits)| (node.clone(), hits.as_array().unwrap().len())).collect()
    };
    let named = |wanted: &[(&str, usize)]| -> Vec<(String, usize)> {
        wanted.iter().map(|(node, hits)| ((*node).to_owned(), *hits)).collect()
    };
    let brought = send(&home, &tree.root, path, json!({"query": "chess"}));
    let wanted = [("department-a", 4), ("department-b", 3), ("lab-c", 2), ("root", 0)];
    assert_eq!(count(&brought), named(&wanted), "{brought}");
    assert_eq!(brought["report"]["errors"], json!({}));
    let brought = send(&home, &tree.root, path, json!({"query": "chess", "destination": "lab-c"}));
    assert_eq!(count(&brought), named(&[("lab-c", 2)]), "{brought}");
    let brought = send(&home, &tree.root, path, json!({"query": "chess", "destination": "nowhere"}));
    assert_eq!(brought["report"]["errors"], json!({"nowhere": "unknown_destination"}), "{brought}");
    assert!(tree.all().iter().all(|node| !node.has("return-with-file-hits")));
    let deployed = deploy(&tree.root, path, json!({"query": "chess"}));
    assert_eq!(count(&deployed), named(&wanted), "{deployed}");
    assert!(tree.b.has("return-with-file-hits"), "without a stage it stays where its tour ended");
    assert_eq!(tree.b.invoke("return-with-file-hits", json!({}))["query"], "chess");
}

// ---- search ---------------------------------------------------------------------------------

#[test]
fn find_text_tells_hits_and_how_much_was_searched() {
    let lab = node("department-a", "department-a");
    let found = deploy(&lab, "search/find_text.py", json!({"query": "CHESS"}));
    assert_eq!(found["hits"].as_array().unwrap().len(), 4, "{found}");
    let rest = ["files", "skipped", "binary", "truncated"].map(|name| found[name].clone());
    assert_eq!(rest, [json!(5), json!(0), json!(0), json!(false)], "{found}");
    let found = lab.invoke("find-text", json!({"query": "chess", "path": "club", "limit": 1}));
    assert_eq!(
        (names(&found["hits"], "path"), &found["truncated"]),
        (vec!["club/archive/simultaneous.txt"], &json!(true))
    );
    let (code, text) = lab.err("invoke_agent", json!({"agent_id": "find-text", "message": {}}));
    assert!(code == "agent_error" && text.contains("a \"query\" is needed"), "{code} {text}");
}

#[test]
fn find_and_return_brings_passages_home() {
    let there = node("department-a", "department-a");
    let home = Lab::start("home");
    let brought = send(&home, &there, "search/find_and_return.py", json!({"query": "opening", "context": 1}));
    let report = &brought["report"];
    assert_eq!(report["node"], "department-a", "{brought}");
    let passage = &report["passages"][1];
    assert_eq!((passage["path"].as_str(), passage["line"].as_u64()), (Some("club/chess-club.txt"), Some(4)));
    let text = std::fs::read_to_string(repository("fixtures/department-a/club/chess-club.txt")).unwrap();
    let wanted: Vec<&str> = text.lines().skip(2).take(3).collect();
    assert_eq!(passage["text"], json!(wanted));
    let deployed = deploy(&there, "search/find_and_return.py", json!({"query": "opening"}));
    assert_eq!(deployed["report"], *report);
}

#[test]
fn list_files_lists_more_than_the_node_names() {
    let lab = Lab::start("many");
    let data = lab.dir.path().join("data");
    for number in 0..70 {
        std::fs::write(data.join(format!("file-{number:02}.txt")), "x").unwrap();
    }
    std::fs::write(data.join("line\nend ü.csv"), "x").unwrap();
    let listed = deploy(&lab, "search/list_files.py", json!({}));
    assert_eq!((listed["count"].as_u64(), &listed["complete"]), (Some(71), &json!(true)), "{listed}");
    let listed = lab.invoke("list-files", json!({"pattern": "*.csv"}));
    assert_eq!(listed["files"], json!(["line\nend ü.csv"]));
    let listed = lab.invoke("list-files", json!({"limit": 3}));
    assert_eq!(
        (listed["files"].as_array().unwrap().len(), listed["why"].as_str()),
        (3, Some("cut at limit"))
    );
    // Few files need no command.
    let few = Lab::with(Keys {
        allow_subprocess: false,
        data_root: Some(repository("fixtures/lab-c")),
        ..keys("few")
    });
    let listed = deploy(&few, "search/list_files.py", json!({"pattern": "*.txt"}));
    assert_eq!(listed, json!({"node": "few", "files": ["lab-journal.txt"], "count": 1, "complete": true}));
}

// ---- maintain -------------------------------------------------------------------------------

#[test]
fn disk_report_lists_disks() {
    let lab = node("root", "root");
    let report = deploy(&lab, "maintain/disk_report.py", json!({"warn_at": 0}));
    let disks = report["disks"].as_array().unwrap_or_else(|| panic!("{report}"));
    assert!(!disks.is_empty() && disks.iter().all(|disk| disk["kb"].is_u64()), "{report}");
    assert_eq!(report["warnings"].as_array().unwrap().len(), disks.len(), "at 0 % all are too full");
    until(5, "it is logged", || lab.logged().contains("disk almost full mounted_on="));
    assert_eq!(lab.invoke("disk-report", json!({"warn_at": 101}))["warnings"], json!([]));
    let strict = Lab::with(Keys { allow_subprocess: false, ..keys("strict") });
    let report = deploy(&strict, "maintain/disk_report.py", json!({}));
    assert!(report["error"].as_str().unwrap().starts_with("forbidden"), "{report}");
}

#[test]
fn process_snapshot_lists_processes_with_and_without_ps() {
    // Without the right to start programs an agent sees no process but its own, unless there is no sandbox.
    let strict = Keys { allow_subprocess: false, sandbox: Wanted::Off, ..keys("strict") };
    let strict = Lab::with(strict);
    for (lab, source) in [(node("root", "root"), None), (strict, Some("/proc"))] {
        let taken = deploy(&lab, "maintain/process_snapshot.py", json!({"limit": 3}));
        let processes = taken["processes"].as_array().unwrap();
        assert!(!processes.is_empty() && processes.len() <= 3, "{taken}");
        assert!(taken["count"].as_u64().unwrap() >= processes.len() as u64);
        let sizes: Vec<u64> = processes.iter().map(|one| one["rss_kb"].as_u64().unwrap()).collect();
        assert!(sizes.windows(2).all(|pair| pair[0] >= pair[1]), "largest first: {taken}");
        if let Some(source) = source {
            assert_eq!(taken["source"], source, "{taken}");
            assert!(taken["note"].as_str().unwrap().contains("allow_subprocess"), "{taken}");
        }
        assert_eq!(
            lab.invoke("process-snapshot", json!({"limit": 1}))["processes"].as_array().unwrap().len(),
            1
        );
    }
}

#[test]
fn environment_probe_tells_what_is_there() {
    let lab = node("root", "root");
    let probed =
        deploy(&lab, "maintain/environment_probe.py", json!({"modules": ["json", "no_such_module"]}));
    assert_eq!(probed["encoding"], json!({"default": "utf-8", "files": "utf-8", "stdout": "utf-8"}));
    assert_eq!(probed["modules"]["json"], json!(true));
    assert_eq!(probed["modules"]["no_such_module"], json!(false));
    assert_eq!(probed["state_dir_writable"], json!(true), "{probed}");
    assert_eq!(probed["limits"]["open_files"], 1024);
    let described = lab.ok("describe_container", json!({}));
    assert_eq!(probed["python"]["version"], described["python"]);
    assert_eq!((&probed["sandbox"], &probed["allow_subprocess"]), (&described["sandbox"], &json!(true)));
    assert!(probed["capabilities"].as_array().unwrap().contains(&json!("run")));
    assert_eq!(lab.invoke("environment-probe", json!({}))["system"]["sysname"], "Linux");
}

// ---- lab ------------------------------------------------------------------------------------

#[test]
fn payload_echo_shows_values_failures_and_timeouts() {
    let lab = node("root", "root");
    let value = json!({"a": [1, 2.5, null, "ä"]});
    let echoed = deploy(&lab, "lab/payload_echo.py", value.clone());
    assert_eq!(
        echoed,
        json!({"node": "root", "hook": "on_activate", "value": value, "type": "dict", "bytes": 27})
    );
    assert_eq!(lab.invoke("payload-echo", json!("x"))["type"], "str");
    let (code, text) =
        lab.err("invoke_agent", json!({"agent_id": "payload-echo", "message": {"fail": "on purpose"}}));
    assert_eq!((code.as_str(), text.contains("RuntimeError: on purpose")), ("agent_error", true), "{text}");
    let late = json!({"agent_id": "payload-echo", "message": {"sleep": 30}, "timeout": 0.2});
    assert_eq!(lab.err("invoke_agent", late).0, "timeout");
    assert_eq!(lab.invoke("payload-echo", json!({"sleep": 0}))["hook"], "on_message");
}

#[test]
fn http_probe_times_answers_and_tells_failures() {
    let lab = node("root", "root");
    let page = |status| Reply::Text(status, "hello ü");
    let service = Service::start(vec![page(200), page(404)]);
    let closed = format!("http://127.0.0.1:{}/", free_port());
    may_ask_this_machine(&lab, "http-probe");
    let probed = deploy(&lab, "lab/http_probe.py", json!({"url": service.url}));
    let first = &probed["results"][0];
    assert_eq!((first["status"].as_u64(), first["characters"].as_u64()), (Some(200), Some(7)), "{probed}");
    assert_eq!(first["content_type"], "application/json");
    assert!(first["ms"].as_f64().unwrap() > 0.0);
    let probed =
        lab.invoke("http-probe", json!({"urls": [service.url, closed, "ftp://x/"], "method": "POST"}));
    assert_eq!(names(&probed["results"], "url"), [service.url.as_str(), &closed, "ftp://x/"]);
    assert_eq!(probed["results"][0]["status"], 404, "{probed}");
    assert_eq!(probed["results"][1]["error"], "unreachable", "{probed}");
    assert_eq!(probed["results"][2]["error"], "bad_payload", "{probed}");
    assert!(service.seen()[1].head.starts_with("POST "));
}

#[test]
fn network_mapper_tables_the_tree_and_what_is_missing() {
    let tree = Tree::start();
    let table = deploy(&tree.root, "lab/network_mapper.py", json!({}));
    let rows = table["nodes"].as_array().unwrap();
    let told: Vec<Value> =
        rows.iter().map(|row| json!([row["node"], row["parent"], row["depth"], row["port"]])).collect();
    let port = |lab: &Lab| lab.running.node.port();
    let wanted = [
        json!(["root", null, 0, port(&tree.root)]),
        json!(["department-a", "root", 1, port(&tree.a)]),
        json!(["lab-c", "department-a", 2, port(&tree.c)]),
        json!(["department-b", "root", 1, port(&tree.b)]),
    ];
    assert_eq!(told, wanted, "{table}");
    assert!(rows.iter().all(|row| row["version"] == env!("CARGO_PKG_VERSION")), "{table}");
    assert!(rows[1..].iter().all(|row| row["ms"].as_f64().unwrap() > 0.0), "{table}");
    assert_eq!(tree.root.invoke("network-mapper", json!({})), table);
    assert_eq!(tree.a.invoke("network-mapper", json!({}))["nodes"].as_array().unwrap().len(), 2);
    tree.c.running.stop(std::time::Duration::from_secs(2));
    let table = deploy(&tree.root, "lab/network_mapper.py", json!({}));
    assert!(table["nodes"][2]["error"].as_str().unwrap().starts_with("unreachable"), "{table}");
}

#[test]
fn tree_walker_compares_the_tree_with_the_map() {
    let tree = Tree::start();
    let walked = deploy(&tree.root, "network/tree_walker.py", json!({}));
    assert_eq!(walked["differences"], json!([]), "{walked}");
    let line = |lab: &Lab, indent: &str, name: &str, state: &str| {
        format!("{indent}{name}  127.0.0.1:{}  {state}", lab.running.node.port())
    };
    let drawing = |state: &str| {
        json!([
            line(&tree.root, "", "root", "ok"),
            line(&tree.a, "  ", "department-a", "ok"),
            line(&tree.c, "    ", "lab-c", state),
            line(&tree.b, "  ", "department-b", "ok"),
        ])
    };
    assert_eq!(walked["drawing"], drawing("ok"));
    assert!(tree.root.has("tree-walker") && tree.all()[1..].iter().all(|node| !node.has("tree-walker")));
    assert_eq!(tree.root.invoke("tree-walker", json!({})), walked);
    let shallow = deploy(&tree.root, "network/tree_walker.py", json!({"max_depth": 1}));
    assert_eq!(shallow["drawing"], drawing("not visited"));
    tree.c.running.stop(std::time::Duration::from_secs(2));
    let walked = deploy(&tree.root, "network/tree_walker.py", json!({}));
    assert_eq!(walked["drawing"], drawing("unreachable"), "{walked}");
}

#[test]
fn tree_walker_names_what_a_map_has_wrong() {
    let below = node("below", "lab-c");
    let a = parent("department-a", vec![below.tree_node(vec![])]);
    let root = parent("root", vec![a.tree_node(vec![])]);
    let walked = deploy(&root, "network/tree_walker.py", json!({}));
    let told = walked["differences"][0].as_str().unwrap();
    assert_eq!(told, "department-a says its children are ['below'], the map says []");
}

// ---- llm ------------------------------------------------------------------------------------

#[test]
fn chat_completion_talks_to_a_service_and_survives_its_failures() {
    let completion = r#"{"model":"tiny-1","choices":[{"message":{"role":"assistant","content":"Grüezi"}}],"usage":{"total_tokens":9}}"#;
    let service = Service::start(vec![
        Reply::Text(200, completion),
        Reply::Text(200, completion),
        Reply::Text(429, r#"{"error":{"message":"slow down"}}"#),
        Reply::Text(200, r#"{"choices":[]}"#),
        Reply::Text(200, r#"{"object":"nothing of use"}"#),
        Reply::Text(200, r#"{"choices":[{"message":{"content":null}}]}"#),
        Reply::Text(200, "<html>a proxy's page</html>"),
        Reply::Text(502, "bad gateway"),
        Reply::Nothing,
        Reply::Text(200, completion),
    ]);
    let lab = node("root", "root");
    may_ask_this_machine(&lab, "chat-completion");
    let settings = json!({"url": service.url, "model": "tiny", "api_key": "key-123", "system": "Be nice."});
    let ready = deploy(&lab, "llm/chat_completion.py", settings);
    assert_eq!(ready, json!({"ok": true, "url": service.url, "model": "tiny", "turns": 0}));
    let ask = |prompt: &str| lab.invoke("chat-completion", json!({"prompt": prompt}));

    let first = ask("Say hello ü");
    assert_eq!(
        first,
        json!({"ok": true, "reply": "Grüezi", "model": "tiny-1", "usage": {"total_tokens": 9}, "turns": 1})
    );
    let sent = &service.seen()[0];
    assert!(sent.head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{}", sent.head);
    assert_eq!(sent.header("authorization"), Some("Bearer key-123"));
    assert_eq!(sent.header("content-type"), Some("application/json"));
    let system = json!({"role": "system", "content": "Be nice."});
    let question = json!({"role": "user", "content": "Say hello ü"});
    assert_eq!(sent.body, json!({"model": "tiny", "messages": [system, question]}));

    assert_eq!(ask("And again")["turns"], 2, "the conversation goes on");
    let reply = json!({"role": "assistant", "content": "Grüezi"});
    let again = json!({"role": "user", "content": "And again"});
    assert_eq!(service.seen()[1].body["messages"], json!([system, question, reply, again]));

    for (error, status, part) in [
        ("http_status", 429, "slow down"),
        ("no_choices", 200, "choices"),
        ("no_choices", 200, "nothing of use"),
        ("no_text", 200, "null"),
        ("not_json", 200, "a proxy's page"),
        ("http_status", 502, "bad gateway"),
    ] {
        let told = ask("this fails");
        assert_eq!((told["ok"].as_bool(), told["error"].as_str()), (Some(false), Some(error)), "{told}");
        assert_eq!(told["status"], status, "{told}");
        assert!(told["text"].as_str().unwrap().contains(part), "{told}");
    }
    let quick = deploy(&lab, "llm/chat_completion.py", json!({"timeout": 0.3, "prompt": "no answer"}));
    assert_eq!((quick["ok"].as_bool(), quick["error"].as_str()), (Some(false), Some("timeout")), "{quick}");
    // What failed is not part of the conversation.
    deploy(&lab, "llm/chat_completion.py", json!({"timeout": 20}));
    assert_eq!(ask("once more")["turns"], 3);
    assert_eq!(service.seen()[9].body["messages"].as_array().unwrap().len(), 6);
    assert_eq!(lab.invoke("chat-completion", json!({"forget": true})), json!({"ok": true, "turns": 0}));
    drop(service);
    assert_eq!(ask("anybody")["error"], "unreachable");
    assert!(!lab.logged().contains("key-123"), "the key is not logged");
}

/// What the service answers to one request.
enum Reply {
    Text(u16, &'static str),
    /// Reads the request and says nothing.
    Nothing,
}

struct Seen {
    head: String,
    body: Value,
}

impl Seen {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

/// A small HTTP server that answers one request after the other from a list.
struct Service {
    url: String,
    seen: Arc<Mutex<Vec<Arc<Seen>>>>,
    port: u16,
    over: Arc<std::sync::atomic::AtomicBool>,
    server: Option<std::thread::JoinHandle<()>>,
}

impl Service {
    fn start(replies: Vec<Reply>) -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (noted, ends) = (Arc::clone(&seen), Arc::clone(&over));
        let mut replies = VecDeque::from(replies);
        let server = std::thread::spawn(move || {
            let mut silent = Vec::new();
            for stream in listener.incoming().flatten() {
                if ends.load(std::sync::atomic::Ordering::Acquire) {
                    return;
                }
                let Some(request) = read_request(&stream) else { continue };
                noted.lock().unwrap().push(Arc::new(request));
                match replies.pop_front() {
                    Some(Reply::Text(status, body)) => answer(stream, status, body),
                    Some(Reply::Nothing) => silent.push(stream),
                    None => answer(stream, 500, "the list is at its end"),
                }
            }
        });
        let url = format!("http://127.0.0.1:{port}/v1/chat/completions");
        Service { url, seen, port, over, server: Some(server) }
    }

    fn seen(&self) -> Vec<Arc<Seen>> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.over.store(true, std::sync::atomic::Ordering::Release);
        let _ = TcpStream::connect(("127.0.0.1", self.port)); // wakes it from accept
        let _ = self.server.take().unwrap().join();
    }
}

fn read_request(stream: &TcpStream) -> Option<Seen> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let seen = Seen { head, body: Value::Null };
    let mut body = vec![0; seen.header("content-length").map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    Some(Seen { body: serde_json::from_slice(&body).unwrap_or_default(), ..seen })
}

fn answer(mut stream: TcpStream, status: u16, body: &str) {
    let length = body.len();
    let _ = write!(stream, "HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
}
