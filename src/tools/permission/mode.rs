//! Permission modes: what a run may do without a rule.

/// What a run may do where no rule applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PermissionMode {
    /// Reading inside the working directories, and harmless commands.
    #[default]
    Default,
    /// Also changing files inside the working directories.
    AcceptEdits,
    /// Nothing that changes anything, whatever the rules allow.
    Plan,
    /// Everything that no deny or ask rule covers.
    BypassPermissions,
    /// As `Default`, but what an ask rule covers is denied even if the run can ask the user.
    DontAsk,
}

impl PermissionMode {
    /// Every mode with its name on the command line.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("default", Self::Default),
        ("manual", Self::Default),
        ("acceptEdits", Self::AcceptEdits),
        ("plan", Self::Plan),
        ("bypassPermissions", Self::BypassPermissions),
        ("dontAsk", Self::DontAsk),
    ];

    pub fn parse(name: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(known, _)| *known == name).map(|(_, mode)| mode)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::AcceptEdits => "acceptEdits",
            Self::Plan => "plan",
            Self::BypassPermissions => "bypassPermissions",
            Self::DontAsk => "dontAsk",
        }
    }

    /// Returns `other`, unless it allows more than this mode.
    #[must_use]
    pub fn restricted_to(self, other: Self) -> Self {
        if other.permissiveness() <= self.permissiveness() { other } else { self }
    }

    fn permissiveness(self) -> u8 {
        match self {
            Self::Plan => 0,
            Self::DontAsk => 1,
            Self::Default => 2,
            Self::AcceptEdits => 3,
            Self::BypassPermissions => 4,
        }
    }
}
