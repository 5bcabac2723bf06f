//! The proof that a caller may do something to one thing.
//!
//! `Granted<Part, right::WriteRobot>` can be made only in `authz`, names its part, and says who asked: the store's
//! functions take it, so a handler that forgets to ask does not compile, and the audit row needs no further argument.

use std::{marker::PhantomData, sync::Arc};

use super::{Chain, Permission, Permissions, permitted};
use crate::authn::Caller;

/// Kinds of things that permissions are asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// An organization.
    Organization,
    /// A location.
    Location,
    /// A machine.
    Machine,
    /// A part of a machine.
    Part,
    /// A fragment.
    Fragment,
    /// A module, a model or a training script.
    RegistryItem,
}

impl Target {
    /// For messages and the audit log; clients call a machine robot.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Organization => "organization",
            Self::Location => "location",
            Self::Machine => "robot",
            Self::Part => "robot part",
            Self::Fragment => "fragment",
            Self::RegistryItem => "registry item",
        }
    }
}

/// A kind of thing, as a type.
pub trait Kind: Send + Sync + 'static {
    /// The same as a value.
    const TARGET: Target;
}

macro_rules! kinds {
    ($($name:ident,)*) => {$(
        #[doc = concat!("See [`Target::", stringify!($name), "`].")]
        #[derive(Debug, Clone, Copy)]
        pub enum $name {}

        impl Kind for $name {
            const TARGET: Target = Target::$name;
        }
    )*};
}

kinds! { Organization, Location, Machine, Part, Fragment, RegistryItem, }

/// The permissions as types, one for each that some operation asks for.
pub mod right {
    use super::Permission;

    /// A permission, as a type.
    pub trait Right: Send + Sync + 'static {
        /// The same as a value.
        const PERMISSION: Permission;
    }

    macro_rules! rights {
        ($($name:ident = $permission:ident,)*) => {$(
            #[doc = concat!("See [`Permission::", stringify!($permission), "`].")]
            #[derive(Debug, Clone, Copy)]
            pub enum $name {}

            impl Right for $name {
                const PERMISSION: Permission = Permission::$permission;
            }
        )*};
    }

    rights! {
        ReadOrganization = ReadOrganization,
        WriteOrganization = WriteOrganization,
        ReadFragment = ReadFragment,
        WriteFragment = WriteFragment,
        ReadLocation = ReadLocation,
        WriteLocation = WriteLocation,
        ReadLocationSecret = ReadLocationSecret,
        ReadRobot = ReadRobot,
        ReadRobotConfig = ReadRobotConfig,
        ReadRobotLogs = ReadRobotLogs,
        ReadRobotHistory = ReadRobotHistory,
        ReadRobotSecret = ReadRobotSecret,
        WriteRobot = WriteRobot,
        ControlRobot = ControlRobot,
        ReadPrivateRegistryItem = ReadPrivateRegistryItem,
        WritePrivateRegistryItem = WritePrivateRegistryItem,
        WritePublicRegistryItem = WritePublicRegistryItem,
        ReadPackages = ReadPackages,
        // What a device does for itself; an API key needs the permission to control the machine for it.
        ActAsDevice = ControlRobot,
    }
}

/// The caller in here may do `R` to the `T` in here.
pub struct Granted<T, R> {
    id: Arc<str>,
    chain: Arc<Chain>,
    caller: Caller,
    what: PhantomData<fn() -> (T, R)>,
}

impl<T: Kind, R: right::Right> Granted<T, R> {
    pub(super) fn new(id: &str, chain: Arc<Chain>, caller: Caller) -> Self {
        Self { id: id.into(), chain, caller, what: PhantomData }
    }

    /// The thing.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Where the thing lies.
    pub fn chain(&self) -> &Arc<Chain> {
        &self.chain
    }

    /// The organization that owns the thing.
    pub fn organization(&self) -> &str {
        &self.chain.organization
    }

    /// Who asked.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// What kind of thing it is.
    pub fn target(&self) -> Target {
        T::TARGET
    }

    /// Everything the caller may do to it.
    pub fn permissions(&self) -> Permissions {
        permitted(&self.caller, T::TARGET, &self.chain)
    }

    /// Whether the caller may do something else to it as well; how secrets stay out of an operator's answers.
    pub fn also<S: right::Right>(&self) -> Option<Granted<T, S>> {
        self.permissions().contains(S::PERMISSION).then(|| Granted {
            id: self.id.clone(),
            chain: self.chain.clone(),
            caller: self.caller.clone(),
            what: PhantomData,
        })
    }
}

impl<T, R> Clone for Granted<T, R> {
    fn clone(&self) -> Self {
        Self { id: self.id.clone(), chain: self.chain.clone(), caller: self.caller.clone(), what: PhantomData }
    }
}
