//! Keys for the Bluetooth door, made on a thread of their own: it takes seconds on a small board.

use actors::provisioning::ble::session::Keys;
use api::Secret;

/// Keys for one opening with this password, from the system's chance; `None` when it gives none.
pub async fn make(password: Secret) -> Option<Keys> {
    smol::unblock(move || Keys::make(&password, &mut api::chance::fill)).await
}
