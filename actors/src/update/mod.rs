//! Brings a product (the machine server, the agent) to its wanted version, or back.
//!
//! Owns the walk wanted → downloading → verifying → staged → waiting → switching → probation → committed | rolled back.
//! Each state is stored before its effect and can be resumed from. Nothing that runs is touched before its successor
//! has been verified, and there is always one version that can be started.
