//! Keys for the Bluetooth door, made on a thread of their own: it takes seconds on a small board.

use actors::provisioning::ble::session::Keys;
use api::Secret;
use ring::rand::{SecureRandom as _, SystemRandom};

/// Keys for one opening with this password, from the system's chance; `None` when it gives none.
pub async fn make(password: Secret) -> Option<Keys> {
    smol::unblock(move || {
        let random = SystemRandom::new();
        Keys::make(&password, &mut |bytes| random.fill(bytes).is_ok())
    })
    .await
}
