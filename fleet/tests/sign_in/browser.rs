//! The same in a real browser: what people see, and can do with keys and fingers. `look.mjs` is the person.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use fleet::{authz::Role, people};
use serde_json::{Value, json};

use super::{Provider, with, world::World};

/// As many as there are sizes and colours of screens in `look.mjs`.
const LOOKS: usize = 3;
/// What a narrow screen has to do with a name, and no page with markup.
const ORGANIZATION: &str = "Maschinenfabrik-Untertürkheim-Obertürkheim-Hedelfingen-Rohracker <& Söhne>";

/// Paths of invitations to everybody in turn, and who they are.
async fn invitations(world: &World, organization: &str) -> Vec<Value> {
    let mut links = Vec::new();
    for turn in 0..LOOKS {
        let who = format!("guest-{turn}");
        let email = format!("{who}.with-an-address-that-is-long@departments.example.org");
        let link = people::invite(&world.server.context, organization, &email, Role::Operator).await.unwrap();
        links.push(json!([link, who, email]));
    }
    links
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_find_their_way_in_a_real_browser() {
    let Some(browser) = std::env::var_os("CLIENT_BROWSER").filter(|value| !value.is_empty()) else {
        let line = b"SKIPPED the pages in a browser: CLIENT_BROWSER is not set; packaging/clients.sh sets it\n";
        let _ = std::io::stderr().write_all(line);
        return;
    };
    let Some(provider) = Provider::start(3600) else { return };
    let (fleet, owner) = with(&provider).await;
    let plain = World::new().await;
    let (at_fleet, at_plain) = (fleet.owner(ORGANIZATION).await, plain.owner(ORGANIZATION).await);
    let known = json!({"email": "ann@example.org", "email_verified": true});
    provider.knows("ann", known).await;
    people::add(&fleet.server.context, "ann@example.org", Some((&owner.organization, Role::Owner))).await.unwrap();
    let invited = invitations(&fleet, &at_fleet.organization).await;
    for one in &invited {
        provider.knows(one[1].as_str().unwrap(), json!({"email": one[2], "email_verified": true})).await;
    }
    let world = json!({
        "provider": provider.address,
        "fleet": {"address": fleet.server.address.to_string(), "invitations": invited},
        "plain": {
            "address": plain.server.address.to_string(),
            "invitations": invitations(&plain, &at_plain.organization).await,
        },
    });
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("people");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sign_in/look.mjs");
    let mut look = Command::new("node");
    look.arg(script).arg(&pictures).arg(world.to_string()).env("CHROMIUM", browser).stdin(Stdio::null());
    let seen = tokio::task::spawn_blocking(move || look.output().unwrap()).await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&seen.stdout), String::from_utf8_lossy(&seen.stderr));
    assert!(seen.status.success(), "{out}\n{err}");
    fleet.end().await;
    plain.end().await;
}
