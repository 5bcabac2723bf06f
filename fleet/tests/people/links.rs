//! The page behind an invitation's link, and its button.

use super::*;

/// What the form of an invitation's page brings along.
async fn form(world: &World, link: &str) -> String {
    let (status, text) = page(world, "GET", link).await;
    assert_eq!(status, 200, "{text}");
    let value = text.split("name=\"promise\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    format!("promise={value}")
}

/// The button of that form is pressed: status, key id and key, or what is said in their place.
async fn pressed(world: &World, link: &str, form: &str) -> Result<(String, String), String> {
    pressed_on(world, "same-origin", link, form).await
}

/// The same on a page of the link itself, or of another site.
async fn pressed_on(world: &World, site: &str, link: &str, form: &str) -> Result<(String, String), String> {
    let headers = [("Content-Type", "application/x-www-form-urlencoded"), ("Sec-Fetch-Site", site)];
    let answer = world::http::ask(world, "POST", link, &headers, form.as_bytes()).await;
    let text = String::from_utf8(answer.body).unwrap();
    match (answer.status, text.contains("id=\"key\"")) {
        (200, true) => Ok((between(&text, "id=\"key-id\">").to_owned(), between(&text, "id=\"key\">").to_owned())),
        _ => Err(text),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_button_that_is_pressed_twice_shows_the_same_key_and_to_nobody_else() {
    let world = World::new().await;
    let owner = world.owner("Acme").await;
    let invited = async |email: &str| {
        people::invite(&world.server.context, &owner.organization, email, fleet::authz::Role::Operator).await.unwrap()
    };
    let link = invited("ann@example.org").await;
    let (hers, other) = (form(&world, &link).await, form(&world, &link).await);
    assert_ne!(hers, other, "each page promises a key of its own");
    // Both presses at once, as from a slow line; which one accepts is all the same.
    let (one, two) = tokio::join!(pressed(&world, &link, &hers), pressed(&world, &link, &hers));
    let (id, key) = one.unwrap();
    assert_eq!(two.unwrap(), (id.clone(), key.clone()));
    let ann = world.login("api-key", &id, &key).await.unwrap();
    assert_eq!(members(&owner.client, &owner.organization).await.members.len(), 1);
    assert!(!hers.contains(&key), "the page does not tell what it promises");
    for foreign in [&*other, "", "promise=", "promise=00", &hers[..hers.len() - 2]] {
        let said = pressed(&world, &link, foreign).await.unwrap_err();
        assert!(said.contains("used already"), "{foreign}: {said}");
    }
    if !world::engine::ON_POSTGRES {
        for entry in std::fs::read_dir(world.folder.path().join("data")).unwrap() {
            let entry = entry.unwrap();
            let bytes =
                if entry.file_type().unwrap().is_file() { std::fs::read(entry.path()).unwrap() } else { vec![] };
            let found = bytes.windows(key.len()).any(|part| part == key.as_bytes());
            assert!(!found, "the key lies in {}", entry.path().display());
        }
    }

    // What another page promised counts for nothing here; who accepts without a page gets a key too.
    for (email, form) in [("bob@example.org", &*hers), ("carl@example.org", "promise=zz"), ("dora@example.org", "x")] {
        let link = invited(email).await;
        let (theirs, _) = pressed(&world, &link, form).await.unwrap();
        assert_ne!(theirs, id, "{email}");
        assert!(pressed(&world, &link, form).await.is_err(), "{email}: once");
    }
    // A key that was rotated since is told to nobody, and after a minute no key is.
    let _: RotateKeyResponse = ann.app("RotateKey", RotateKeyRequest { id }).await.unwrap();
    assert!(pressed(&world, &link, &hers).await.is_err(), "rotated");
    let link = invited("erin@example.org").await;
    let hers = form(&world, &link).await;
    let given = pressed(&world, &link, &hers).await.unwrap();
    world.server.context.clock.push(30_000);
    assert_eq!(pressed(&world, &link, &hers).await, Ok(given));
    world.server.context.clock.push(31_000);
    assert!(pressed(&world, &link, &hers).await.unwrap_err().contains("used already"), "a minute later");
    world.end().await;
}

#[tokio::test]
async fn a_member_who_presses_twice_is_welcomed_twice_and_another_site_presses_nothing() {
    let world = World::new().await;
    let (one, other) = (world.owner("Acme").await, world.owner("Other").await);
    let invited = async |owner: &Owner| {
        let role = fleet::authz::Role::Operator;
        people::invite(&world.server.context, &owner.organization, "ann@example.org", role).await.unwrap()
    };
    let link = invited(&one).await;
    let hers = form(&world, &link).await;
    // Somebody who has the link fetches a form, so as to know the key that it promises.
    let said = pressed_on(&world, "cross-site", &link, &hers).await.unwrap_err();
    assert!(said.contains("Another site"), "{said}");
    assert!(members(&one.client, &one.organization).await.members.is_empty());
    pressed(&world, &link, &hers).await.unwrap();
    // She has a key now, which opens the other one too.
    let link = invited(&other).await;
    let (hers, another) = (form(&world, &link).await, form(&world, &link).await);
    for _ in 0..2 {
        let said = pressed(&world, &link, &hers).await.unwrap_err();
        assert!(said.contains("is now a member of <strong>Other</strong>"), "{said}");
    }
    let said = pressed(&world, &link, &another).await.unwrap_err();
    assert!(said.contains("used already"), "{said}");
    world.server.context.clock.push(61_000);
    let said = pressed(&world, &link, &hers).await.unwrap_err();
    assert!(said.contains("used already"), "{said}");
    assert_eq!(members(&other.client, &other.organization).await.members.len(), 1);
    world.end().await;
}
