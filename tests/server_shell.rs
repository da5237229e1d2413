//! The protocol with what a shell has: jq, openssl, sed, nc, and the clients of `examples/`.

#[path = "support/lines.rs"]
mod lines;
#[path = "support/mod.rs"]
mod support;
use lines::{run, COUNTER};
use serde_json::{json, Value};
use support::lab::{Lab, ADMIN};

/// Whether the tools are there; says so if not.
fn have(tools: &[&str]) -> bool {
    let missing =
        tools.iter().find(|tool| run("sh", &["-c", &format!("command -v {tool}")], &[], "").is_err());
    if let Some(tool) = missing {
        eprintln!("not shown: this machine has no {tool}");
    }
    missing.is_none()
}

fn client(name: &str) -> String {
    format!("{}/examples/clients/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_line_signed_with_jq_and_openssl_is_answered_and_the_answer_checked_with_sed_and_openssl() {
    if !have(&["jq", "openssl", "nc", "sed"]) {
        return;
    }
    let lab = Lab::start("shell");
    lab.deploy(COUNTER);
    let script = r#"
        set -eu
        hmac() { openssl dgst -sha256 -hmac "$SECRET" | sed 's/^.*= *//'; }
        message=$(jq -ncS --argjson timestamp "$(date +%s)" --arg nonce "$(openssl rand -hex 16)" \
            '{type: "invoke_agent", sender: "admin", timestamp: $timestamp, nonce: $nonce,
              payload: {agent_id: "counter", message: {text: "é\u007f\u2028😀\"\\/", n: 3.5}}}')
        signature=$(printf %s "$message" | hmac)
        answer=$(printf '%s' "$message" | sed "s/}\$/,\"signature\":\"$signature\"}/" | nc -N 127.0.0.1 "$PORT")
        signed=$(printf '%s' "$answer" | sed 's/,"signature":"[0-9a-f]*"}$/}/')
        claimed=$(printf '%s' "$answer" | sed 's/^.*,"signature":"\([0-9a-f]*\)"}$/\1/')
        [ "$(printf '%s' "$signed" | hmac)" = "$claimed" ] || { echo "not genuine: $answer" >&2; exit 1; }
        printf '%s' "$signed" | jq -c .result.result.got
    "#;
    let port = lab.address().port.to_string();
    let printed = run("sh", &["-c", script], &[("SECRET", ADMIN), ("PORT", &port)], "");
    let got: Value =
        serde_json::from_str(&printed.unwrap_or_else(|error| panic!("{error}\n{}", lab.logged()))).unwrap();
    assert_eq!(got, json!({"text": "é\u{7f}\u{2028}😀\"\\/", "n": 3.5}));
}

#[test]
fn the_example_clients_talk_to_a_node() {
    let lab = Lab::start("examples");
    lab.deploy(COUNTER);
    let port = lab.address().port.to_string();
    let nonce = "0123456789abcdef";
    for (n, (name, tools)) in
        [("sign_jq.sh", ["jq", "openssl", "nc"]), ("sign_python.sh", ["python3", "sh", "nc"])]
            .into_iter()
            .enumerate()
    {
        if !have(&tools) {
            continue;
        }
        let envs = [("AGENTCONTAINER_SECRET", ADMIN), ("NONCE", nonce)];
        let call = |kind: &str, payload: &str, input: &str| {
            run("sh", &[&client(name), "127.0.0.1", &port, kind, payload], &envs, input)
                .unwrap_or_else(|error| panic!("{name} {kind}: {error}\n{}", lab.logged()))
        };
        let answer = call("invoke_agent", r#"{"message":["é",1.50],"agent_id":"counter"}"#, "");
        let told: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(told["result"]["result"], json!({"count": n + 1, "got": ["é", 1.5]}), "{answer}");
        // A payload from standard input, and none at all.
        let deployed = call(
            "deploy_agent",
            "-",
            &json!({"source_code": support::lab::agent("fed", "pass")}).to_string(),
        );
        assert!(deployed.contains("\"status\":\"ok\""), "{deployed}");
        assert!(call("list_agents", "", "").contains("\"counter\""));
        // The checker takes what is genuine, and nothing else.
        let check = |secret: &str, nonce: &str, answer: &str| {
            run("sh", &[&client("check_answer.sh"), nonce], &[("AGENTCONTAINER_SECRET", secret)], answer)
        };
        assert_eq!(check(ADMIN, nonce, &answer).as_deref(), Ok(&*answer));
        assert_eq!(check(ADMIN, "", &answer).as_deref(), Ok(&*answer));
        for (secret, nonce, answer) in [
            ("other", nonce, answer.clone()),
            (ADMIN, "another", answer.clone()),
            (ADMIN, nonce, answer.replace("\"count\":", "\"count\":9")),
            (ADMIN, nonce, "{\"status\":\"ok\",\"result\":1}\n".to_owned()),
            (ADMIN, nonce, String::new()),
        ] {
            assert!(check(secret, nonce, &answer).is_err(), "{answer}");
        }
        // A wrong secret: the node's refusal comes, unsigned.
        let envs = [("AGENTCONTAINER_SECRET", "wrong"), ("NONCE", nonce)];
        let refused = run("sh", &[&client(name), "127.0.0.1", &port, "list_agents"], &envs, "").unwrap();
        assert!(
            refused.contains("\"bad_signature\"") && check("wrong", nonce, &refused).is_err(),
            "{refused}"
        );
    }
}
