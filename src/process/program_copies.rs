//! Copies of programs in a folder that commands cannot write to, which still find their neighbours.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

/// What the folders of copies are called.
const PREFIX: &str = ".outlast-pinned-";

/// The age at which a folder is taken for one of a run that was killed.
const ABANDONED: Duration = Duration::from_hours(30 * 24);

/// How many neighbours in a folder are linked.
const NEIGHBOURS_MAX: usize = 10_000;

/// The copies of a run. They are removed with it.
#[derive(Debug)]
pub(super) struct ProgramCopies {
    folder: TempDir,
    made: usize,
    /// Whether commands may write to the folder too, as there is no other.
    pub(super) is_exposed: bool,
}

impl ProgramCopies {
    /// Creates the folder: in the first of `places` where it can be, best in one that is not `open`
    /// to commands.
    ///
    /// # Errors
    /// It cannot be created in any.
    pub(super) fn create(places: &[PathBuf], open: impl Fn(&Path) -> bool) -> io::Result<Self> {
        if let Some(own) = places.first() {
            // If this fails, the next place is tried.
            let _ = DirBuilder::new().recursive(true).mode(0o700).create(own);
            remove_abandoned(own);
        }
        let (exposed, closed): (Vec<_>, Vec<_>) = places.iter().partition(|place| open(place));
        let all = closed.into_iter().map(|place| (place, false));
        let mut all = all.chain(exposed.into_iter().map(|place| (place, true)));
        let create = |place: &Path| tempfile::Builder::new().prefix(PREFIX).tempdir_in(place);
        let found = all.find_map(|(place, exposed)| Some((create(place).ok()?, exposed)));
        let (folder, is_exposed) =
            found.ok_or_else(|| io::Error::other("no folder can be made for its copy"))?;
        Ok(Self { folder, made: 0, is_exposed })
    }

    /// Copies a program below `base`. The copy has the same place in a tree of folders whose other
    /// entries are links to the real ones, so that it finds what lies beside it.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn copy(&mut self, base: &Path, file: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
        let copy = self.make_place(base, file)?;
        fs::write(&copy, bytes)?;
        let mode = fs::metadata(file)?.permissions().mode() & 0o500;
        fs::set_permissions(&copy, Permissions::from_mode(mode | 0o400))?;
        Ok(copy)
    }

    /// The same for a link in `base` to a program that is elsewhere: its place can matter, as for
    /// the interpreter of a Python environment.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn link(&mut self, base: &Path, link: &Path, real: &Path) -> io::Result<PathBuf> {
        let copy = self.make_place(base, link)?;
        symlink(real, &copy)?;
        Ok(copy)
    }

    fn make_place(&mut self, base: &Path, file: &Path) -> io::Result<PathBuf> {
        let inner = file.strip_prefix(base).map_err(io::Error::other)?;
        let mut copy = self.folder.path().join(self.made.to_string());
        self.made += 1;
        let mut real = base.to_owned();
        for part in inner {
            fs::create_dir(&copy)?;
            for entry in fs::read_dir(&real)?.take(NEIGHBOURS_MAX) {
                let name = entry?.file_name();
                if name != part {
                    symlink(real.join(&name), copy.join(&name))?;
                }
            }
            real.push(part);
            copy.push(part);
        }
        Ok(copy)
    }
}

/// Removes what killed runs left long ago.
fn remove_abandoned(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().filter_map(Result::ok) {
        let is_one = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let modified = entry.metadata().and_then(|facts| facts.modified());
        let age = modified.ok().and_then(|modified| modified.elapsed().ok());
        if is_one && age.is_some_and(|age| age > ABANDONED) {
            // Another run may have been faster.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
