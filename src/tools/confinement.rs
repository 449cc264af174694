//! The confinement of a program that outlast itself runs on files that earlier commands could
//! write.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::process::LandlockPolicy;
use crate::types::ChildEnvironment;

use super::environment::CommandEnv;
use super::sandbox::{CommandScope, Sandbox, SandboxContext, SandboxSettings};

/// The environment and the access of a command in a run with default settings.
pub struct Confinement {
    pub environment: Vec<(OsString, OsString)>,
    /// `None`: the kernel has no sandbox.
    pub landlock: Option<LandlockPolicy>,
    /// The folder that is granted as that of the run. Removed with this value.
    _scratch: TempDir,
}

impl Confinement {
    /// Determines the confinement of a command that is started in `cwd`. `config_dir` is closed to
    /// it. Blocks.
    ///
    /// # Errors
    /// A folder for temporary files cannot be made, or the sandbox cannot be set up.
    pub fn of_command(
        cwd: &Path,
        home: Option<&Path>,
        config_dir: PathBuf,
        variables: &[(OsString, OsString)],
    ) -> io::Result<Self> {
        let scratch = tempfile::tempdir()?;
        let context = SandboxContext::new(cwd, home, scratch.path(), variables);
        let settings =
            SandboxSettings { config_dir: Some(config_dir), ..SandboxSettings::default() };
        let sandbox = Sandbox::new(&settings, &context).map_err(io::Error::other)?;
        let landlock = sandbox.rules(&CommandScope::Sandbox(Vec::new()))?;
        let policy = ChildEnvironment::Scrub;
        let environment = CommandEnv::for_children(variables, policy, &[], &[], "").variables;
        Ok(Self { environment, landlock, _scratch: scratch })
    }
}
