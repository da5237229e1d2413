//! Making what a state directory consists of.

use super::whereabouts;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Makes a directory for this user alone. One that exists and is open to others is closed to them if
/// it is empty or a node's already; else it is somebody's, and none of ours to change.
pub(super) fn make_private(dir: &Path) -> Result<(), String> {
    let doing = |error: io::Error| format!("making {}: {error}", dir.display());
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(doing)?;
    let mode = fs::metadata(dir).map_err(doing)?.permissions().mode();
    if mode & 0o077 != 0 {
        let empty = fs::read_dir(dir).map_err(doing)?.next().is_none();
        if !empty && !dir.join("meta").is_dir() && !dir.join(whereabouts::FILE).is_file() {
            return Err(format!(
                "{} is open to other users (mode {:o}) and holds other things: take another state directory, or chmod it to 700",
                dir.display(),
                mode & 0o7777
            ));
        }
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(doing)?;
    }
    Ok(())
}
