//! Keys and secrets that end: what ended stays dead.

use api::pb::platform::app::v1::*;
use tonic::{Code, Status};

use super::super::world::{Client, Owner};
use super::{Doing, There, Writer};

/// Rotates one key; makes others and deletes them.
pub(super) struct Keys {
    owner: Owner,
    there: There,
    id: String,
    /// Each with what was signed in by it; the last one counts.
    secrets: Vec<(String, Client)>,
    /// A rotation that was not heard of.
    rotating: bool,
    dead: Vec<(String, String, Client)>,
    rests_after: usize,
}

impl Keys {
    pub(super) async fn new(there: &There, rests_after: usize) -> Self {
        let owner = there.owner().await;
        let (id, secret, client) = made(&owner, there).await.unwrap();
        let there = there.clone();
        Self { owner, there, id, secrets: vec![(secret, client)], rotating: false, dead: Vec::new(), rests_after }
    }
}

/// A new key, and somebody who has signed in by it.
async fn made(owner: &Owner, there: &There) -> Result<(String, String, Client), Status> {
    let request = owner.key_request("operator", "organization", &owner.organization);
    let made: CreateKeyResponse = owner.client.app("CreateKey", request).await?;
    let client = there.login("api-key", &made.id, &made.key).await?;
    Ok((made.id, made.key, client))
}

/// Whether a key lets somebody in, and a token that it gave before is good; these two never differ.
async fn is_good(there: &There, id: &str, secret: &str, before: &Client) -> bool {
    let by_secret = there.login("api-key", id, secret).await.map(drop);
    let request = ListOrganizationsRequest {};
    let by_token: Result<ListOrganizationsResponse, _> =
        there.again(before).await.app("ListOrganizations", request).await;
    for refused in [by_secret.as_ref().err(), by_token.as_ref().err()].into_iter().flatten() {
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused:?}");
    }
    assert_eq!(by_secret.is_ok(), by_token.is_ok(), "the key {by_secret:?}, its token {by_token:?}");
    by_secret.is_ok()
}

impl Writer for Keys {
    fn kind(&self) -> &'static str {
        "keys"
    }

    fn rests(&self) -> bool {
        self.secrets.len() > self.rests_after
    }

    fn step(&mut self) -> Doing<'_, Result<(), Status>> {
        Box::pin(async {
            let doomed = made(&self.owner, &self.there).await?;
            let id = doomed.0.clone();
            let _: DeleteKeyResponse = self.owner.client.app("DeleteKey", DeleteKeyRequest { id }).await?;
            self.dead.push(doomed);
            self.rotating = true;
            let request = RotateKeyRequest { id: self.id.clone() };
            let rotated: RotateKeyResponse = self.owner.client.app("RotateKey", request).await?;
            self.rotating = false;
            let signed_in = self.there.login("api-key", &self.id, &rotated.key).await;
            // Those before are dead from here on, whatever becomes of the new one's first call.
            let nobody = || Client { token: None, ..self.owner.client.clone() };
            let client = signed_in.as_ref().map_or_else(|_| nobody(), Client::clone);
            self.secrets.push((rotated.key, client));
            signed_in.map(drop)
        })
    }

    fn check<'a>(&'a mut self, there: &'a There) -> Doing<'a, ()> {
        Box::pin(async {
            for (id, secret, client) in &self.dead {
                assert!(!is_good(there, id, secret, client).await, "a deleted key is alive again");
            }
            let ((last, client), before) = self.secrets.split_last().unwrap();
            for (secret, client) in before {
                assert!(!is_good(there, &self.id, secret, client).await, "a rotated key is alive again");
            }
            match &client.token {
                Some(_) if self.rotating => drop(is_good(there, &self.id, last, client).await),
                Some(_) => assert!(is_good(there, &self.id, last, client).await, "a rotation was acknowledged"),
                None => assert!(there.login("api-key", &self.id, last).await.is_ok(), "a rotation was acknowledged"),
            }
        })
    }
}

/// Gives a part another secret and takes the one before away, again and again.
pub(super) struct Secrets {
    owner: Owner,
    part: String,
    /// Id and text of those that count, as far as that was said.
    good: Vec<(String, String)>,
    dead: Vec<String>,
    /// One whose end was not heard of.
    ending: Option<String>,
}

impl Secrets {
    pub(super) async fn new(there: &There) -> Self {
        let owner = there.owner().await;
        let part = there.new_part(&owner).await;
        let good = part.secrets.into_iter().map(|one| (one.id, one.secret)).collect();
        Self { owner, part: part.id, good, dead: Vec::new(), ending: None }
    }
}

impl Writer for Secrets {
    fn kind(&self) -> &'static str {
        "secrets"
    }

    fn step(&mut self) -> Doing<'_, Result<(), Status>> {
        Box::pin(async {
            let request = CreateRobotPartSecretRequest { part_id: self.part.clone() };
            let made: CreateRobotPartSecretResponse = self.owner.client.app("CreateRobotPartSecret", request).await?;
            let secrets = made.part.unwrap().secrets;
            let new = secrets.into_iter().find(|one| self.good.iter().all(|(id, _)| *id != one.id)).unwrap();
            self.good.push((new.id, new.secret));
            let (secret_id, text) = self.good.remove(0);
            self.ending = Some(text.clone());
            let request = DeleteRobotPartSecretRequest { part_id: self.part.clone(), secret_id };
            let _: DeleteRobotPartSecretResponse = self.owner.client.app("DeleteRobotPartSecret", request).await?;
            self.dead.extend(self.ending.take());
            Ok(())
        })
    }

    fn check<'a>(&'a mut self, there: &'a There) -> Doing<'a, ()> {
        Box::pin(async {
            for (_, secret) in &self.good {
                let good = there.login("robot-secret", &self.part, secret).await;
                assert!(good.is_ok(), "an acknowledged secret is refused");
            }
            for secret in &self.dead {
                let refused = there.login("robot-secret", &self.part, secret).await.map(drop).unwrap_err();
                assert_eq!(refused.code(), Code::Unauthenticated, "a deleted secret is alive again: {refused:?}");
            }
        })
    }
}
