//! Keys and secrets that end: what ended stays dead.

use api::pb::platform::app::v1::*;
use tonic::{Code, Status};

use super::super::world::{Client, Owner};
use super::{Doing, There, Writer};

/// Makes a key and deletes it, then rotates another one: these three, again and again.
pub(super) struct Keys {
    owner: Owner,
    there: There,
    id: String,
    /// Of the key that is rotated, in order, each with what was signed in by it.
    secrets: Vec<(String, Client)>,
    /// Those that are deleted, one before each rotation.
    doomed: Vec<(String, String, Client)>,
    acknowledged: u64,
    /// One more than acknowledged if something was asked for and not heard of.
    asked: u64,
    rests_after: u64,
}

impl Keys {
    pub(super) async fn new(there: &There, rests_after: u64) -> Self {
        let owner = there.owner().await;
        let (id, secret, client) = made(&owner, there).await.unwrap();
        let (there, secrets, doomed) = (there.clone(), vec![(secret, client)], Vec::new());
        Self { owner, there, id, secrets, doomed, acknowledged: 0, asked: 0, rests_after }
    }
}

/// A new key, and somebody who has signed in by it.
async fn made(owner: &Owner, there: &There) -> Result<(String, String, Client), Status> {
    let request = owner.key_request("operator", "organization", &owner.organization);
    let made: CreateKeyResponse = owner.client.app("CreateKey", request).await?;
    let client = there.login("api-key", &made.id, &made.key).await?;
    Ok((made.id, made.key, client))
}

/// Whether a key lets somebody in, and a token that it gave before, if it did, is good; these two never differ.
async fn is_good(there: &There, id: &str, secret: &str, before: &Client) -> bool {
    let by_secret = there.login("api-key", id, secret).await.map(drop);
    if before.token.is_none() {
        return by_secret.is_ok();
    }
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
        self.acknowledged / 3 >= self.rests_after
    }

    fn step(&mut self) -> Doing<'_, Result<(), Status>> {
        Box::pin(async {
            self.asked = self.acknowledged + 1;
            let doomed = made(&self.owner, &self.there).await?;
            let id = doomed.0.clone();
            self.doomed.push(doomed);
            (self.acknowledged, self.asked) = (self.asked, self.asked + 1);
            let _: DeleteKeyResponse = self.owner.client.app("DeleteKey", DeleteKeyRequest { id }).await?;
            (self.acknowledged, self.asked) = (self.asked, self.asked + 1);
            let request = RotateKeyRequest { id: self.id.clone() };
            let rotated: RotateKeyResponse = self.owner.client.app("RotateKey", request).await?;
            self.acknowledged = self.asked;
            let signed_in = self.there.login("api-key", &self.id, &rotated.key).await;
            // Those before are dead from here on, whatever becomes of the new one's first call.
            let nobody = || Client { token: None, ..self.owner.client.clone() };
            let client = signed_in.as_ref().map_or_else(|_| nobody(), Client::clone);
            self.secrets.push((rotated.key, client));
            signed_in.map(drop)
        })
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    fn check_from<'a>(&'a mut self, there: &'a There, least: u64) -> Doing<'a, ()> {
        Box::pin(async move {
            let (mut good, mut alive) = (Vec::new(), Vec::new());
            for (n, (secret, client)) in self.secrets.iter().enumerate() {
                good.extend(is_good(there, &self.id, secret, client).await.then_some(n));
            }
            for (n, (id, secret, client)) in self.doomed.iter().enumerate() {
                alive.extend(is_good(there, id, secret, client).await.then_some(n));
            }
            let rotations = match good[..] {
                // One that was not heard of came after all of them.
                [] => self.secrets.len(),
                [one] => one,
                _ => panic!("a rotated key is alive again: {good:?}"),
            };
            let all = 3 * rotations as u64;
            let moments = match alive[..] {
                [] => [all, all + 2],
                [one] if one == rotations => [all + 1; 2],
                _ => panic!("after {rotations} rotations, keys are alive that were deleted: {alive:?}"),
            };
            let known = least..=self.asked;
            assert!(moments.iter().any(|moment| known.contains(moment)), "{moments:?} of {known:?}");
        })
    }
}

/// Gives a part another secret and takes the one before away, again and again.
pub(super) struct Secrets {
    owner: Owner,
    part: String,
    /// Id and text of all that were heard of, in order.
    secrets: Vec<(String, String)>,
    acknowledged: u64,
    /// One more than acknowledged if something was asked for and not heard of.
    asked: u64,
}

impl Secrets {
    pub(super) async fn new(there: &There) -> Self {
        let owner = there.owner().await;
        let part = there.new_part(&owner).await;
        let secrets = part.secrets.into_iter().map(|one| (one.id, one.secret)).collect();
        Self { owner, part: part.id, secrets, acknowledged: 0, asked: 0 }
    }
}

impl Writer for Secrets {
    fn kind(&self) -> &'static str {
        "secrets"
    }

    fn step(&mut self) -> Doing<'_, Result<(), Status>> {
        Box::pin(async {
            self.asked = self.acknowledged + 1;
            let request = CreateRobotPartSecretRequest { part_id: self.part.clone() };
            let made: CreateRobotPartSecretResponse = self.owner.client.app("CreateRobotPartSecret", request).await?;
            let secrets = made.part.unwrap().secrets;
            let new = secrets.into_iter().find(|one| self.secrets.iter().all(|(id, _)| *id != one.id)).unwrap();
            let secret_id = self.secrets.last().unwrap().0.clone();
            self.secrets.push((new.id, new.secret));
            (self.acknowledged, self.asked) = (self.asked, self.asked + 1);
            let request = DeleteRobotPartSecretRequest { part_id: self.part.clone(), secret_id };
            let _: DeleteRobotPartSecretResponse = self.owner.client.app("DeleteRobotPartSecret", request).await?;
            self.acknowledged = self.asked;
            Ok(())
        })
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    fn check_from<'a>(&'a mut self, there: &'a There, least: u64) -> Doing<'a, ()> {
        Box::pin(async move {
            let mut good = Vec::new();
            for (n, (_, secret)) in self.secrets.iter().enumerate() {
                match there.login("robot-secret", &self.part, secret).await.map(drop) {
                    Ok(()) => good.push(n as u64),
                    Err(refused) => assert_eq!(refused.code(), Code::Unauthenticated, "{refused:?}"),
                }
            }
            let moment = match good[..] {
                [one] => 2 * one,
                [one, next] if next == one + 1 => 2 * one + 1,
                _ => panic!("not what is good at one moment: {good:?} of {}", self.secrets.len()),
            };
            let known = least..=self.asked;
            assert!(known.contains(&moment), "{moment} of {known:?}");
        })
    }
}
