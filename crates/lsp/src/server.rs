//! The protocol: one thread handles one message after the other. Queued messages are searched for
//! cancellations first; diagnostics are made when typing pauses.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::rc::Rc;
use std::str::FromStr;
use std::time::{Duration, Instant};

use lsp_server::{Connection, ErrorCode, Message, Notification, Request, RequestId, Response};
use lsp_types::notification::{self as note, Notification as _};
use lsp_types::request::{self as ask, Request as _};
use lsp_types::*;
use serde_json::Value;
use spile_syntax::ast::Span;
use spile_syntax::diag::Diagnostics;
use spile_syntax::fmt::format_script;

use crate::analysis::{Analysis, DocumentKind};
use crate::text::{DocText, Encoding};
use crate::workspace::Workspace;
use crate::{complete, diagnostics, goto, hover, symbols};

/// Pause in typing after which diagnostics are made.
const PAUSE: Duration = Duration::from_millis(120);

/// An open document.
struct Document {
    uri: Uri,
    version: i32,
    text: DocText,
    kind: DocumentKind,
    /// The analysis of the current text.
    analysis: Option<Rc<Analysis>>,
    /// The time at which diagnostics are to be sent.
    due: Option<Instant>,
}

struct Server<'a> {
    workspace: &'a Workspace,
    connection: &'a Connection,
    encoding: Encoding,
    documents: BTreeMap<String, Document>,
    /// Received messages that wait.
    queue: VecDeque<Message>,
    shut_down: bool,
}

/// The error of a request.
struct RequestError(ErrorCode, String);

/// Serves on standard input and output until the client sends `exit` or disconnects. Returns
/// whether it ended as the protocol requires.
///
/// # Errors
/// When the client violates the protocol.
pub fn stdio(workspace: &Workspace) -> Result<bool, String> {
    let (connection, threads) = Connection::stdio();
    let clean = serve(workspace, &connection);
    drop(connection);
    if clean.as_ref().is_ok_and(|clean| *clean) {
        threads.join().map_err(|e| e.to_string())?;
    }
    clean
}

/// Like [`stdio`], on any connection.
///
/// # Errors
/// When the client violates the protocol.
pub fn serve(workspace: &Workspace, connection: &Connection) -> Result<bool, String> {
    let (id, params) = match connection.initialize_start() {
        Ok(started) => started,
        Err(e) if e.channel_is_disconnected() => return Ok(false),
        Err(e) => return Err(e.to_string()),
    };
    let encoding = encoding(&params);
    let info = ServerInfo {
        name: "spile".into(),
        version: Some(env!("CARGO_PKG_VERSION").into()),
    };
    let answer = InitializeResult {
        capabilities: capabilities(encoding),
        server_info: Some(info),
    };
    let answer = serde_json::to_value(answer).map_err(|e| e.to_string())?;
    if let Err(e) = connection.initialize_finish(id, answer) {
        return if e.channel_is_disconnected() {
            Ok(false)
        } else {
            Err(e.to_string())
        };
    }
    let mut server = Server {
        workspace,
        connection,
        encoding,
        documents: BTreeMap::new(),
        queue: VecDeque::new(),
        shut_down: false,
    };
    if let Some(why) = &workspace.blind {
        let params = ShowMessageParams {
            typ: MessageType::WARNING,
            message: why.clone(),
        };
        server.notify::<note::ShowMessage>(params);
    }
    server.run();
    Ok(server.shut_down)
}

/// UTF-8 if the client offers it, otherwise UTF-16.
fn encoding(params: &Value) -> Encoding {
    let offered = params.pointer("/capabilities/general/positionEncodings");
    let utf8 = offered
        .and_then(Value::as_array)
        .is_some_and(|encodings| encodings.iter().any(|e| e == "utf-8"));
    if utf8 {
        Encoding::Utf8
    } else {
        Encoding::Utf16
    }
}

fn capabilities(encoding: Encoding) -> ServerCapabilities {
    let sync = TextDocumentSyncOptions {
        open_close: Some(true),
        change: Some(TextDocumentSyncKind::INCREMENTAL),
        save: Some(TextDocumentSyncSaveOptions::Supported(true)),
        ..Default::default()
    };
    let triggers = [".", "$", "@", ">", "\"", ":"];
    ServerCapabilities {
        position_encoding: Some(match encoding {
            Encoding::Utf8 => PositionEncodingKind::UTF8,
            Encoding::Utf16 => PositionEncodingKind::UTF16,
        }),
        text_document_sync: Some(TextDocumentSyncCapability::Options(sync)),
        completion_provider: Some(CompletionOptions {
            trigger_characters: Some(triggers.map(str::to_owned).to_vec()),
            ..Default::default()
        }),
        hover_provider: Some(HoverProviderCapability::Simple(true)),
        definition_provider: Some(OneOf::Left(true)),
        document_symbol_provider: Some(OneOf::Left(true)),
        document_formatting_provider: Some(OneOf::Left(true)),
        ..Default::default()
    }
}

/// Answers a request with these parameters.
fn answer<P: serde::de::DeserializeOwned, A: serde::Serialize>(
    params: Value,
    answer: impl FnOnce(P) -> A,
) -> Result<Value, RequestError> {
    let failed = |code| move |e: serde_json::Error| RequestError(code, e.to_string());
    let params = serde_json::from_value(params).map_err(failed(ErrorCode::InvalidParams))?;
    serde_json::to_value(answer(params)).map_err(failed(ErrorCode::InternalError))
}

impl Server<'_> {
    fn run(&mut self) {
        loop {
            while let Ok(message) = self.connection.receiver.try_recv() {
                self.queue.push_back(message);
            }
            if let Some(message) = self.queue.pop_front() {
                if !self.message(message) {
                    return;
                }
                continue;
            }
            let receiver = &self.connection.receiver;
            // Without a message: whether it was only the time that ended.
            let received = match self.documents.values().filter_map(|d| d.due).min() {
                None => receiver.recv().map_err(|_| false),
                Some(due) => receiver.recv_deadline(due).map_err(|e| e.is_timeout()),
            };
            match received {
                Ok(message) => self.queue.push_back(message),
                Err(true) => self.publish_due(),
                Err(false) => return,
            }
        }
    }

    /// Handles a message; `false` ends the server.
    fn message(&mut self, message: Message) -> bool {
        match message {
            Message::Request(request) => self.request(request),
            Message::Notification(n) if n.method == note::Exit::METHOD => return false,
            // The server never ends because of a document: the state after a panic is dropped.
            Message::Notification(n) => {
                let _ = catch_unwind(AssertUnwindSafe(|| self.notification(n)));
            }
            Message::Response(_) => {}
        }
        true
    }

    fn send(&self, message: impl Into<Message>) {
        // The next receive reports a client that has disconnected.
        let _ = self.connection.sender.send(message.into());
    }

    fn notify<N: note::Notification>(&self, params: N::Params) {
        if let Ok(params) = serde_json::to_value(params) {
            self.send(Notification {
                method: N::METHOD.into(),
                params,
            });
        }
    }

    fn canceled(&self, id: &RequestId) -> bool {
        self.queue.iter().any(|m| match m {
            Message::Notification(n) if n.method == note::Cancel::METHOD => {
                let given = n.params.get("id").cloned();
                given
                    .and_then(|v| serde_json::from_value::<RequestId>(v).ok())
                    .as_ref()
                    == Some(id)
            }
            _ => false,
        })
    }

    fn request(&mut self, request: Request) {
        let Request { id, method, params } = request;
        let failed = |code, why: &str| Err(RequestError(code, why.to_owned()));
        let result = if self.shut_down {
            failed(ErrorCode::InvalidRequest, "the server is shut down")
        } else if self.canceled(&id) {
            failed(ErrorCode::RequestCanceled, "canceled")
        } else {
            let run = AssertUnwindSafe(|| self.dispatch(&method, params));
            let ended = catch_unwind(run);
            ended.unwrap_or_else(|_| failed(ErrorCode::InternalError, "a bug in spile"))
        };
        self.send(match result {
            Ok(value) => Response {
                id,
                result: Some(value),
                error: None,
            },
            Err(RequestError(code, message)) => Response::new_err(id, code as i32, message),
        });
    }

    fn dispatch(&mut self, method: &str, params: Value) -> Result<Value, RequestError> {
        match method {
            ask::Shutdown::METHOD => {
                self.shut_down = true;
                Ok(Value::Null)
            }
            ask::Completion::METHOD => answer(params, |p: CompletionParams| {
                self.completion(&p.text_document_position)
            }),
            ask::HoverRequest::METHOD => answer(params, |p: HoverParams| {
                self.hover(&p.text_document_position_params)
            }),
            ask::GotoDefinition::METHOD => answer(params, |p: GotoDefinitionParams| {
                self.definition(&p.text_document_position_params)
            }),
            ask::DocumentSymbolRequest::METHOD => answer(params, |p: DocumentSymbolParams| {
                self.symbols(&p.text_document.uri)
            }),
            ask::Formatting::METHOD => answer(params, |p: DocumentFormattingParams| {
                self.formatting(&p.text_document.uri)
            }),
            _ => Err(RequestError(
                ErrorCode::MethodNotFound,
                format!("{method} is not supported"),
            )),
        }
    }

    /// Handles a notification; `None` if its parameters are wrong, or about a document that is not open.
    fn notification(&mut self, n: Notification) -> Option<()> {
        match n.method.as_str() {
            note::DidOpenTextDocument::METHOD => {
                let p: DidOpenTextDocumentParams = serde_json::from_value(n.params).ok()?;
                self.open(p.text_document);
            }
            note::DidChangeTextDocument::METHOD => {
                self.change(serde_json::from_value(n.params).ok()?)?;
            }
            note::DidSaveTextDocument::METHOD => {
                let p: DidSaveTextDocumentParams = serde_json::from_value(n.params).ok()?;
                let d = self.documents.get_mut(p.text_document.uri.as_str())?;
                d.due = d.due.map(|_| Instant::now());
            }
            note::DidCloseTextDocument::METHOD => {
                let p: DidCloseTextDocumentParams = serde_json::from_value(n.params).ok()?;
                let uri = p.text_document.uri;
                self.documents.remove(uri.as_str())?;
                let none = PublishDiagnosticsParams::new(uri, Vec::new(), None);
                self.notify::<note::PublishDiagnostics>(none);
            }
            _ => {}
        }
        Some(())
    }

    fn open(&mut self, item: TextDocumentItem) {
        let document = Document {
            kind: self.kind(&item.uri),
            version: item.version,
            text: DocText::new(item.text, self.encoding),
            analysis: None,
            due: Some(Instant::now()),
            uri: item.uri.clone(),
        };
        self.documents
            .insert(item.uri.as_str().to_owned(), document);
    }

    fn change(&mut self, p: DidChangeTextDocumentParams) -> Option<()> {
        let d = self.documents.get_mut(p.text_document.uri.as_str())?;
        p.content_changes.into_iter().for_each(|c| d.text.edit(c));
        d.version = p.text_document.version;
        d.analysis = None;
        d.due = Some(Instant::now() + PAUSE);
        Some(())
    }

    fn kind(&self, uri: &Uri) -> DocumentKind {
        let path = path_of(uri.as_str());
        let workspace = self.workspace;
        let original = workspace.library.file_ids().find(|(id, is_user)| {
            let location = workspace.locations.path(workspace.sources.name(*id));
            let location = location.filter(|_| !is_user);
            location.is_some_and(|p| Some(p.as_os_str().as_encoded_bytes()) == path.as_deref())
        });
        match original {
            Some((id, _)) => DocumentKind::Tapset(id),
            None if uri.as_str().ends_with(".stpm") => DocumentKind::Macros,
            None => DocumentKind::Script,
        }
    }

    fn publish_due(&mut self) {
        let now = Instant::now();
        let due = |d: &&Document| d.due.is_some_and(|due| due <= now);
        let uris: Vec<Uri> = self
            .documents
            .values()
            .filter(due)
            .map(|d| d.uri.clone())
            .collect();
        for uri in uris {
            let list = catch_unwind(AssertUnwindSafe(|| {
                let (a, text) = self.analysis(&uri)?;
                Some(diagnostics::diagnostics(&a, text, &uri))
            }));
            let Some(d) = self.documents.get_mut(uri.as_str()) else {
                continue;
            };
            d.due = None;
            let version = Some(d.version);
            if let Ok(Some(list)) = list {
                let diagnostics = PublishDiagnosticsParams::new(uri, list, version);
                self.notify::<note::PublishDiagnostics>(diagnostics);
            }
        }
    }

    /// The current text of a document, and its analysis.
    fn analysis(&mut self, uri: &Uri) -> Option<(Rc<Analysis>, &DocText)> {
        let d = self.documents.get_mut(uri.as_str())?;
        if d.analysis.is_none() {
            let path = path_of(uri.as_str());
            let name = path.map_or_else(
                || uri.as_str().to_owned(),
                |p| String::from_utf8_lossy(&p).into_owned(),
            );
            let analysis = Analysis::new(self.workspace, &name, d.text.as_str(), d.kind);
            d.analysis = Some(Rc::new(analysis));
        }
        Some((d.analysis.clone()?, &d.text))
    }

    fn completion(&mut self, request: &TextDocumentPositionParams) -> Option<CompletionResponse> {
        let workspace = self.workspace;
        let (a, text) = self.analysis(&request.text_document.uri)?;
        let offset = text.offset(request.position);
        let items = complete::complete(&a, workspace, text, offset);
        Some(CompletionResponse::Array(items))
    }

    fn hover(&mut self, request: &TextDocumentPositionParams) -> Option<Hover> {
        let workspace = self.workspace;
        let (a, text) = self.analysis(&request.text_document.uri)?;
        let token = a.token_at(text.offset(request.position))?;
        Some(Hover {
            contents: HoverContents::Markup(MarkupContent {
                kind: MarkupKind::Markdown,
                value: hover::hover(&a, workspace, token)?,
            }),
            range: a.tokens.get(token).map(|t| text.span(t.span)),
        })
    }

    fn definition(
        &mut self,
        request: &TextDocumentPositionParams,
    ) -> Option<GotoDefinitionResponse> {
        let (workspace, encoding) = (self.workspace, self.encoding);
        let uri = &request.text_document.uri;
        let (a, text) = self.analysis(uri)?;
        let token = a.token_at(text.offset(request.position))?;
        let location = |span: Span| {
            if span.file == a.file {
                return Some(Location::new(uri.clone(), text.span(span)));
            }
            let (name, text) = (a.sources.name(span.file), a.sources.text(span.file));
            let path = workspace.locations.provide(name, text)?;
            let range = DocText::new(text.to_owned(), encoding).span(span);
            Some(Location::new(uri_of(&path)?, range))
        };
        let spans = goto::definitions(&a, workspace, token).into_iter();
        let locations = spans.filter_map(location).collect();
        Some(GotoDefinitionResponse::Array(locations))
    }

    fn symbols(&mut self, uri: &Uri) -> Option<DocumentSymbolResponse> {
        let (a, text) = self.analysis(uri)?;
        let symbols = symbols::symbols(&a, text);
        Some(DocumentSymbolResponse::Nested(symbols))
    }

    /// One edit that replaces the whole text, or none. `None` if the text has errors.
    fn formatting(&mut self, uri: &Uri) -> Option<Vec<TextEdit>> {
        let workspace = self.workspace;
        let d = self.documents.get(uri.as_str())?;
        let (mut sources, mut unheard) = (workspace.sources.clone(), Diagnostics::new());
        let env = (workspace.env)(Vec::new());
        let text = d.text.as_str();
        let file = sources.add(uri.as_str(), text.as_bytes().to_vec());
        let out = format_script(
            &mut sources,
            file,
            text.as_bytes(),
            &env,
            &workspace.macros,
            &mut unheard,
        )?;
        let out = String::from_utf8(out).ok()?;
        if out == text {
            return Some(Vec::new());
        }
        let range = d.text.range(0, text.len());
        Some(vec![TextEdit::new(range, out)])
    }
}

/// The path of a `file:` URI.
fn path_of(uri: &str) -> Option<Vec<u8>> {
    let rest = uri.strip_prefix("file://")?;
    let path = &rest.as_bytes()[rest.find('/')?..];
    let (mut out, mut i) = (Vec::with_capacity(path.len()), 0);
    while i < path.len() {
        let hex = path
            .get(i + 1..i + 3)
            .and_then(|h| std::str::from_utf8(h).ok());
        let byte = hex.and_then(|h| u8::from_str_radix(h, 16).ok());
        match byte.filter(|_| path[i] == b'%') {
            Some(b) => {
                out.push(b);
                i += 3;
            }
            None => {
                out.push(path[i]);
                i += 1;
            }
        }
    }
    Some(out)
}

/// A path as a `file:` URI.
fn uri_of(path: &Path) -> Option<Uri> {
    let mut text = String::from("file://");
    for b in path.as_os_str().as_encoded_bytes() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                text.push(char::from(*b));
            }
            _ => text.push_str(&format!("%{b:02X}")),
        }
    }
    Uri::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_uris_and_paths_again() {
        let uri = uri_of(Path::new("/a b/\u{e9}%.stp")).expect("a URI");
        assert_eq!(uri.as_str(), "file:///a%20b/%C3%A9%25.stp");
        assert_eq!(path_of(uri.as_str()), Some("/a b/\u{e9}%.stp".into()));
        assert_eq!(path_of("file://host/x%"), Some(b"/x%".to_vec()));
        assert_eq!(path_of("untitled:1"), None);
    }
}
