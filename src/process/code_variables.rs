//! Variables that name code which programs load although their command line does not name it.

use std::ffi::OsString;
use std::path::PathBuf;

use super::job::Job;
use super::job_paths::{absolute, variable};
use super::programs::absolute_path;

/// Lists of files and folders. A relative one lies in the working folder.
#[rustfmt::skip]
const PATH_LISTS: [&str; 22] = [
    "PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX", "NODE_PATH",
    "LD_LIBRARY_PATH", "PERL5LIB", "PERLLIB", "RUBYLIB", "GEM_HOME", "GEM_PATH", "CLASSPATH",
    "BASH_ENV", "ZDOTDIR", "GCONV_PATH", "OPENSSL_CONF", "PHPRC", "PHP_INI_SCAN_DIR",
    "DOTNET_STARTUP_HOOKS", "GIT_EXEC_PATH", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM",
];

/// Libraries. Those without a slash are not looked up in the working folder.
const LIBRARIES: [&str; 2] = ["LD_PRELOAD", "LD_AUDIT"];

/// Options of an interpreter.
#[rustfmt::skip]
const OPTIONS: [&str; 6] = [
    "NODE_OPTIONS", "PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS",
];

/// Options that load the file or module after their equals sign, also from the working folder.
#[rustfmt::skip]
const LOADERS: [&str; 10] = [
    "-r", "--require", "--import", "--loader", "--experimental-loader", "--env-file",
    "--env-file-if-exists", "--experimental-config-file", "--openssl-config", "-Mlib",
];

/// Returns true if an option of an interpreter loads the file or module that follows it.
pub(super) fn is_loader(option: &str) -> bool {
    LOADERS.contains(&option)
}

/// The paths of code that variables name.
pub(super) fn loaded_paths(job: &Job) -> Vec<PathBuf> {
    let mut words: Vec<String> = Vec::new();
    for value in values(job, &PATH_LISTS) {
        words.extend(value.split(':').map(str::to_owned));
    }
    for value in values(job, &LIBRARIES) {
        let names = value.split([':', ' ']).filter(|name| name.contains('/'));
        words.extend(names.map(str::to_owned));
    }
    for value in values(job, &OPTIONS) {
        let plain = value.replace(['"', '\'', '\\'], "");
        words.extend(plain.split_whitespace().flat_map(|option| loaded_by(option, job)));
    }
    words.retain(|word| !word.is_empty());
    words.iter().map(|word| absolute(&job.cwd, word, job)).collect()
}

/// The paths in the variables that settings give to this program alone: it may run the files there,
/// whatever the names of the variables are.
pub(super) fn own_paths(job: &Job) -> Vec<PathBuf> {
    let variables = job.terms.own_variables.iter();
    let values = variables.filter_map(|name| variable(job, name)).map(|it| it.to_string_lossy());
    let mut paths = Vec::new();
    for value in values {
        let parts = value.split([':', ';', ',', '=', ' ', '\n', '"', '\'', '|', '@']);
        let parts = parts.chain(value.split(':')).chain([&*value]);
        let ends = parts.flat_map(|part| [part, without_flag(part)]);
        let is_path = |word: &&str| {
            if word.contains('/') { is_path(word, job) } else { job.cwd.join(word).is_file() }
        };
        let named = ends.filter(|word| !word.is_empty()).filter(is_path);
        paths.extend(named.map(|word| absolute(&job.cwd, word, job)));
    }
    paths
}

/// The environment without relative elements of `PATH` and empty elements of other lists, which
/// lead to the working folder: `PYTHONPATH=$PYTHONPATH:/opt/x` has one if the variable is not set.
pub(super) fn without_working_folder(job: &Job) -> Vec<(OsString, OsString)> {
    let mut environment = job.environment.clone();
    for (name, value) in &mut environment {
        let Some(plain) = name.to_str() else { continue };
        if plain == "PATH" {
            *value = absolute_path(Some(value));
        } else if PATH_LISTS.contains(&plain)
            // An empty element of this list is PHP's own folder.
            && plain != "PHP_INI_SCAN_DIR"
            && let Some(list) = value.to_str()
        {
            let full: Vec<&str> = list.split(':').filter(|part| !part.is_empty()).collect();
            *value = full.join(":").into();
        }
    }
    environment
}

fn values<'a>(job: &'a Job, names: &'a [&str]) -> impl Iterator<Item = String> + 'a {
    names.iter().filter_map(|name| Some(variable(job, name)?.to_string_lossy().into_owned()))
}

/// The words of an option of an interpreter that may name code.
fn loaded_by(option: &str, job: &Job) -> Vec<String> {
    if !option.starts_with('-') {
        // A file or module, unless it is the number of the option before it.
        let is_number = option.bytes().all(|byte| byte.is_ascii_digit());
        return if is_number { Vec::new() } else { vec![option.to_owned()] };
    }
    let of_loader = option.split_once('=').filter(|(name, _)| is_loader(name));
    if let Some((_, loaded)) = of_loader.or_else(|| Some(("", option.strip_prefix("-I")?))) {
        return loaded.split(',').map(str::to_owned).collect();
    }
    let parts = option.split([':', '=', ',']).chain([option]).map(without_flag);
    parts.filter(|part| is_path(part, job)).map(str::to_owned).collect()
}

/// The value that is joined to a flag: `-Ilib`, `-javaagent/x`.
fn without_flag(word: &str) -> &str {
    match word.strip_prefix('-') {
        Some(flag) => flag.find(['/', '.', '~']).map_or_else(|| flag.get(1..), |at| flag.get(at..)),
        None => Some(word),
    }
    .unwrap_or_default()
}

/// Returns true if a word is a path, rather than `owner/name` or a key in base64.
fn is_path(word: &str, job: &Job) -> bool {
    let first = word.split('/').next().unwrap_or_default();
    match first {
        "" => word.starts_with('/'),
        "." | ".." | "~" => true,
        _ => job.cwd.join(first).symlink_metadata().is_ok(),
    }
}
