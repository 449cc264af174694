//! Prepares calls for hooks, rules and the tools, which all see the same: the exact name of the
//! tool, an input of the types that it takes, an absolute path.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::Url;
use serde_json::Value;

use crate::transcript::ToolCall;
use crate::types::CallPermission;

use super::agents::AgentCall;
use super::background;
use super::call_paths::path;
use super::catalog::{BuiltinTool, is_agent_tool};
use super::coercion::coerce;
use super::command_settings::check_command;
use super::edit;
use super::external::ExternalTools;
use super::file_names;
use super::glob;
use super::grep;
use super::input::{self, ParsedInput, ToolRequest};
use super::notebook_edit;
use super::offered_name::similar_tool;
use super::outcome::{ToolError, ToolRefusal};
use super::panic_guard::catch_panic;
use super::paths::{PATH_BYTES_MAX, resolve};
use super::permission::{Denial, may_only_read};
use super::shell_lexer::{self, NotPlain, SimpleCommand};
use super::structured::StructuredAnswers;
use super::toolbox::{ToolSet, Toolbox};
use super::walk;
use super::web;

/// A call with its input parsed and its path made absolute. It has no permission yet.
pub struct PreparedCall {
    call: ToolCall,
    may_run_in_parallel: bool,
    /// The parsed input, or the refusal that no permission changes.
    pub(super) work: Result<ParsedCall, ToolRefusal>,
}

/// A parsed call.
pub(super) enum ParsedCall {
    BuiltIn(Arc<BuiltinCall>),
    External(Arc<dyn ExternalTools>),
    Agent(AgentCall),
    /// An answer is validated when it is stored.
    Answer(Arc<StructuredAnswers>),
}

/// A parsed call of a built-in tool.
pub(super) struct BuiltinCall {
    pub(super) tool: BuiltinTool,
    pub(super) request: ToolRequest,
    /// The changes of the input, for the model.
    pub(super) notes: Vec<String>,
    /// The host of a request.
    pub(super) host: String,
    /// The simple commands of a command.
    pub(super) commands: Result<Vec<SimpleCommand>, NotPlain>,
}

impl BuiltinCall {
    /// True if it is a command in the foreground that may be one that only reads.
    fn may_only_read(&self) -> bool {
        matches!(&self.request, ToolRequest::Bash(bash) if !bash.run_in_background)
            && self.commands.as_deref().is_ok_and(may_only_read)
    }
}

impl PreparedCall {
    /// The call as hooks and the journal see it. Invalid parts of the input are left as they were.
    pub fn call(&self) -> &ToolCall {
        &self.call
    }

    /// The input of a call that starts a sub-agent.
    pub fn agent_call(&self) -> Option<&AgentCall> {
        let Ok(ParsedCall::Agent(call)) = &self.work else { return None };
        Some(call)
    }

    /// True if the tool does not exist or the input is not valid.
    pub fn is_invalid(&self) -> bool {
        matches!(self.work, Err(ToolRefusal::Invalid(_)))
    }

    /// True if this call can run in parallel with others of its reply: it starts a sub-agent, or
    /// changes nothing, because of the kind of tool, because the kernel enforces it, or because a
    /// trusted MCP server declares it. For a command, its permit decides.
    pub fn may_run_in_parallel(&self) -> bool {
        self.may_run_in_parallel
    }
}

impl Toolbox {
    /// Prepares a call that a model has written: gives it the exact name of its tool, repairs the
    /// types of its input, and makes its path, explicit or implied, independent of later changes of
    /// the working directory. Has no effect.
    pub fn prepare(&self, mut call: ToolCall) -> Arc<PreparedCall> {
        call.name = self.tool_for(&call.name).into_owned();
        self.prepare_changed(call)
    }

    /// Prepares a call of a tool that was prepared already, with another input.
    pub fn prepare_changed(&self, call: ToolCall) -> Arc<PreparedCall> {
        Arc::new(self.prepared(call))
    }

    fn prepared(&self, mut call: ToolCall) -> PreparedCall {
        call.name = self.exact_name(&call.name).into_owned();
        let work = self.parse(&mut call);
        let may_run_in_parallel = is_agent_tool(&call.name)
            || match &work {
                Ok(ParsedCall::External(source)) => match source.permission_for(&call) {
                    CallPermission::NotNeeded => true,
                    CallPermission::Rule { reads_only, .. } => reads_only,
                },
                Ok(ParsedCall::BuiltIn(built_in)) => {
                    built_in.tool.effect().changes_nothing()
                        || self.tools.shell.sandbox.can_hold_readers() && built_in.may_only_read()
                }
                Ok(ParsedCall::Agent(_) | ParsedCall::Answer(_)) | Err(_) => {
                    self.effect(&call.name).changes_nothing()
                }
            };
        PreparedCall { call, may_run_in_parallel, work }
    }

    /// Prepares the call with symbolic links in its path resolved, if there are any.
    pub fn with_real_path(&self, prepared: &PreparedCall) -> Option<Arc<PreparedCall>> {
        let Ok(ParsedCall::BuiltIn(built_in)) = &prepared.work else { return None };
        let (field, path) = (built_in.tool.path_field()?, path(&built_in.request)?);
        let path = file_names::find(Path::new(&path));
        let real = resolve(&file_names::find_alike(&path));
        if real == path {
            return None;
        }
        let mut call = prepared.call.clone();
        call.input.as_object_mut()?.insert(field.to_owned(), file_names::shown(&real).into());
        // The path that a pattern of Glob begins with would replace the resolved one.
        Some(Arc::new(PreparedCall { call: call.clone(), ..self.prepared(call) }))
    }

    /// The file that a call reads or changes, with links resolved.
    pub fn file_path_of(&self, prepared: &PreparedCall) -> Option<PathBuf> {
        let Ok(ParsedCall::BuiltIn(built_in)) = &prepared.work else { return None };
        let is_search = matches!(built_in.tool, BuiltinTool::Glob | BuiltinTool::Grep);
        let path = path(&built_in.request).filter(|_| !is_search)?;
        Some(self.tools.places.resolve(&path, Path::new("/")).real)
    }

    fn parse(&self, call: &mut ToolCall) -> Result<ParsedCall, ToolRefusal> {
        if let Some(answers) = self.tools.acceptance.answers_of(&call.name) {
            return Ok(ParsedCall::Answer(answers));
        }
        if self.is_agent_tool_name(&call.name) {
            return Ok(ParsedCall::Agent(AgentCall::parse(
                &mut call.input,
                &self.offered_kinds(),
            )?));
        }
        if let Some(source) = self.source_of(&call.name) {
            if let Some(schema) = source.input_schema(&call.name) {
                coerce(&mut call.input, &schema);
            }
            return Ok(ParsedCall::External(Arc::clone(source)));
        }
        if let Some(why) = self.unavailable_message(&call.name) {
            return Err(ToolRefusal::invalid(why));
        }
        self.tools.parse(call).map(|built_in| ParsedCall::BuiltIn(Arc::new(built_in)))
    }
}

impl ToolSet {
    /// True if there is a file with one path and none with another.
    fn has_only(&self, file: &str, other: &str) -> bool {
        let place = |path: &str| self.places.absolute(path, &self.shell.folder.path());
        place(file).is_file() && place(other).symlink_metadata().is_err()
    }

    /// The error for a tool that does not exist, with the one that does the same.
    fn unknown_tool(&self, name: &str) -> String {
        let similar = similar_tool(name).and_then(BuiltinTool::named);
        let similar = similar.filter(|tool| self.offered.contains(tool));
        let advice = similar.map_or(String::new(), |tool| format!(". Use {}.", tool.name()));
        format!("No such tool available: {name}{advice}")
    }

    fn parse(&self, call: &mut ToolCall) -> Result<BuiltinCall, ToolRefusal> {
        let Some(tool) = BuiltinTool::named(&call.name).filter(|tool| self.offered.contains(tool))
        else {
            return Err(ToolRefusal::invalid(self.unknown_tool(&call.name)));
        };
        if tool == BuiltinTool::Write
            && let Some(content) = call.input.get_mut("content")
        {
            json_to_text(content);
        }
        let absolute =
            |path: &str| file_names::shown(&self.places.absolute(path, &self.shell.folder.path()));
        let ParsedInput { mut request, mut notes } = input::parse(tool, &mut call.input, absolute)?;
        let (mut host, mut commands) = (String::new(), Ok(Vec::new()));
        if let ToolRequest::Grep(grep) = &mut request
            && catch_panic(tool.name(), || grep::needs_multiline(grep)).unwrap_or(false)
        {
            grep.multiline = true;
            notes.push("multiline was set, because the pattern matches line feeds".to_owned());
        }
        self.split_off_root(&mut request);
        check(tool, &request)?;
        if let ToolRequest::Bash(bash) = &mut request {
            notes.extend(self.shell.lower_timeout(bash));
            commands = shell_lexer::split(&bash.command);
        } else if let ToolRequest::WebFetch(fetch) = &request {
            host = web::requested_host(self.web.as_ref(), fetch)?;
        } else if tool == BuiltinTool::WebSearch && !self.searches_web {
            return Err(Denial::NoSearch.into());
        }
        if let (Some(field), Some(path)) = (tool.path_field(), path(&request)) {
            let path = undecorated_path(&path);
            let mut path = path.as_ref();
            if path.trim() != path && self.has_only(path.trim(), path) {
                path = path.trim();
            }
            if let ToolRequest::Read(read) = &mut request
                && let Some((file, first, last)) = named_lines(path)
                && self.has_only(file, path)
            {
                path = file;
                read.offset = read.offset.or(Some(first));
                read.limit = read.limit.or(last.map(|last| last - first + 1));
                for (name, number) in [("offset", read.offset), ("limit", read.limit)] {
                    if let (Some(fields), Some(number)) = (call.input.as_object_mut(), number) {
                        fields.insert(name.to_owned(), number.into());
                    }
                }
            }
            let absolute = absolute(path);
            check_path(&absolute)?;
            if let Some(fields) = call.input.as_object_mut() {
                fields.insert(field.to_owned(), absolute.clone().into());
            }
            request.set_path(absolute);
        }
        Ok(BuiltinCall { tool, request, notes, host, commands })
    }
}

/// Performs the checks that are specific to the tool. They compile patterns of the model with
/// third-party parsers, so a panic refuses the call.
fn check(tool: BuiltinTool, request: &ToolRequest) -> Result<(), ToolError> {
    path(request).map_or(Ok(()), |path| check_path(&path))?;
    catch_panic(tool.name(), || check_input(request))
        .unwrap_or_else(|panicked| Err(panicked.to_string().into()))
}

/// Writes the text of a JSON file that a parser of replies has turned into a value.
fn json_to_text(content: &mut Value) {
    if (content.is_object() || content.is_array())
        && let Ok(text) = serde_json::to_string_pretty(content)
    {
        *content = Value::String(text + "\n");
    }
}

/// Removes what surrounds a path in some calls: line ends, quotes, and the scheme of a URL.
fn undecorated_path(path: &str) -> Cow<'_, str> {
    let path = path.trim_matches(['\r', '\n']);
    let quoted = ['"', '\'', '`'].iter().find_map(|quote| {
        path.strip_prefix(*quote)?.strip_suffix(*quote).filter(|inner| inner.starts_with('/'))
    });
    let path = quoted.unwrap_or(path);
    let url = Url::parse(path).ok().filter(|url| url.scheme() == "file");
    let file = url.and_then(|url| url.to_file_path().ok());
    file.map_or(path.into(), |file| file_names::shown(&file).into())
}

/// Splits the form in which programs name a place in a file, `FILE:2`, `FILE:2:10`, `FILE:2-5` or
/// `FILE#L2-L5`, into the file, its first line, and its last one.
fn named_lines(path: &str) -> Option<(&str, u64, Option<u64>)> {
    let (file, lines) = path.rsplit_once("#L").or_else(|| path.rsplit_once(':'))?;
    if let Some((first, last)) = lines.split_once('-') {
        let (first, last) = (first.parse().ok()?, last.trim_start_matches('L').parse().ok()?);
        return (1..=last).contains(&first).then_some((file, first, Some(last)));
    }
    let number: u64 = lines.parse().ok()?;
    let before = file.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?)));
    let (file, line) = before.unwrap_or((file, number));
    (line > 0).then_some((file, line, None))
}

fn check_path(path: &str) -> Result<(), ToolError> {
    if path.contains('\0') {
        return Err("the path contains a NUL character".into());
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(format!("the path is longer than {PATH_BYTES_MAX} bytes").into());
    }
    Ok(())
}

fn check_input(request: &ToolRequest) -> Result<(), ToolError> {
    match request {
        ToolRequest::Bash(bash) => {
            check_command(&bash.command).map_err(|why| why.to_string().into())
        }
        ToolRequest::Edit(edit) => edit::check_input(edit),
        ToolRequest::NotebookEdit(edit) => notebook_edit::check_input(edit),
        ToolRequest::Glob(glob) => glob::compile(glob).map(drop),
        ToolRequest::Grep(grep) => {
            grep.kind.as_deref().map_or(Ok(()), |kind| walk::find_types(kind).map(drop))?;
            if let Some(glob) = &grep.glob {
                walk::compile_globs(Path::new("/"), Some(glob))?;
            }
            grep::compile(grep).map(drop)
        }
        ToolRequest::BashOutput(look) => background::compile_filter(look).map(drop),
        ToolRequest::WebSearch(search) => search.check(),
        ToolRequest::Read(_)
        | ToolRequest::Write(_)
        | ToolRequest::WebFetch(_)
        | ToolRequest::ToolSearch(_)
        | ToolRequest::TodoWrite(_)
        | ToolRequest::KillShell(_) => Ok(()),
    }
}
