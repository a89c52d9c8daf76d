//! A real browser: headless Chromium, which ChromeDriver controls.
//!
//! ChromeDriver takes JSON over HTTP (the protocol WebDriver). These tests need five of its requests; the crates that
//! offer all of them bring some thirty others, or a licence that `deny.toml` does not allow.

use crate::processes::SIGKILL;
use redlock_tests::{SOON, signal, skip, spawn};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// Without these, Chromium needs a sandbox and a GPU, and asks servers of its maker.
const OPTIONS: [&str; 11] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1200,900",
];

/// The body of an HTTP response. ChromeDriver does not close the connection after it.
fn body_of(mut response: impl BufRead) -> Vec<u8> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        response.read_line(&mut line).expect("chromedriver answers");
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().expect("a length");
            }
            Some(_) => {}
            None if line.trim_end().is_empty() => break,
            // The status line.
            None => {}
        }
    }
    let mut body = vec![0; length];
    response.read_exact(&mut body).expect("a whole body");
    body
}

/// A browser with one tab. Dropping this ends it.
pub(crate) struct Browser {
    driver: Child,
    /// ChromeDriver gets an error if nobody reads its stdout.
    _stdout: BufReader<ChildStdout>,
    port: u16,
    session: String,
    profile: TempDir,
}

impl Browser {
    /// Starts a browser. Without Chromium and ChromeDriver it reports a skip and returns `None`.
    pub(crate) fn start() -> Option<Self> {
        let find = |name: &str| {
            let path = std::env::var_os("PATH")?;
            std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
        };
        let (Some(chromium), Some(chromedriver)) = (find("chromium"), find("chromedriver")) else {
            skip("chromium or chromedriver is not installed");
            return None;
        };
        let profile = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(chromedriver);
        command.arg("--port=0").env("HOME", profile.path()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = spawn(command).expect("chromedriver starts");
        let mut stdout = BufReader::new(driver.stdout.take().expect("a pipe"));
        let mut line = String::new();
        // "ChromeDriver was started successfully on port 40123."
        let port = loop {
            line.clear();
            assert!(stdout.read_line(&mut line).expect("text") > 0, "chromedriver has ended");
            if let Some((_, port)) = line.split_once("successfully on port ") {
                break port.trim().trim_end_matches('.').parse().expect("a port");
            }
        };
        let folder = format!("--user-data-dir={}", profile.path().display());
        let options: Vec<&str> = OPTIONS.into_iter().chain([folder.as_str()]).collect();
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"binary": chromium, "args": options},
        }}});
        let mut browser = Self { driver, _stdout: stdout, port, session: String::new(), profile };
        let started = browser.request("POST", "/session", Some(&wanted));
        browser.session = format!("/session/{}", started["sessionId"].as_str().expect("a session"));
        Some(browser)
    }

    /// One WebDriver request. Returns the value of the answer, and asserts that it is no error.
    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("chromedriver listens");
        // A cold start of Chromium on a busy machine takes some seconds.
        stream.set_read_timeout(Some(SOON * 6)).expect("a timeout");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).expect("chromedriver reads");
        let body = body_of(BufReader::new(stream));
        let value = serde_json::from_slice::<Value>(&body).expect("JSON")["value"].clone();
        assert!(value.get("error").is_none(), "{method} {path}: {value}");
        value
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.request("POST", &format!("{}{path}", self.session), Some(body))
    }

    pub(crate) fn open(&self, url: &str) {
        self.post("/url", &json!({"url": url}));
    }

    /// The value of a JavaScript expression in the page.
    pub(crate) fn value(&self, expression: &str) -> Value {
        self.post("/execute/sync", &json!({"script": format!("return {expression};"), "args": []}))
    }

    /// The visible text of the element with this id.
    pub(crate) fn text(&self, id: &str) -> String {
        let text = self.value(&format!("document.getElementById({}).innerText", json!(id)));
        text.as_str().expect("text").to_owned()
    }

    /// The visible text of each cell of the rows of a table.
    pub(crate) fn rows(&self, table: &str) -> Vec<Vec<String>> {
        let rows = format!(
            "[...document.querySelectorAll('#{table} tbody tr')].map(row => [...row.children].map(cell => cell.innerText))"
        );
        serde_json::from_value(self.value(&rows)).expect("rows of texts")
    }

    /// Shows the page as on a screen of this size, in pixels of CSS; `mobile`: as on a phone.
    pub(crate) fn resize(&self, width: u32, height: u32, mobile: bool) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile});
        let command = json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics});
        self.post("/goog/cdp/execute", &command);
    }

    /// The messages of the console, with violations of the page's security policy among them.
    pub(crate) fn console(&self) -> Vec<String> {
        let entries = self.post("/se/log", &json!({"type": "browser"}));
        let entries = entries.as_array().expect("entries");
        entries.iter().map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Writes a picture of the page, as a PNG file.
    pub(crate) fn screenshot(&self, file: &Path) {
        let picture = self.request("GET", &format!("{}/screenshot", self.session), None);
        let out = std::fs::File::create(file).expect("a file");
        let mut decoder = Command::new("base64");
        let mut decoder = spawn({
            decoder.arg("-d").stdin(Stdio::piped()).stdout(out);
            decoder
        })
        .expect("base64 starts");
        let mut stdin = decoder.stdin.take().expect("a pipe");
        stdin.write_all(picture.as_str().expect("base64").as_bytes()).expect("base64 reads");
        drop(stdin);
        assert!(decoder.wait().expect("a child can be waited for").success());
    }
}

impl Browser {
    /// Kills the processes that use the profile. There are none if ChromeDriver has ended the session.
    fn kill_chromium(&self) {
        let profile = self.profile.path().as_os_str().as_encoded_bytes();
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let arguments = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            let is_ours = arguments.windows(profile.len()).any(|part| part == profile);
            if let (true, Some(pid)) =
                (is_ours, process.file_name().to_str().and_then(|pid| pid.parse().ok()))
            {
                signal(pid, SIGKILL);
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // ChromeDriver ends Chromium with the session. In a failing test it may not answer any more.
        if !self.session.is_empty()
            && let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port))
        {
            let _ = stream.set_read_timeout(Some(SOON));
            let _ = write!(
                stream,
                "DELETE {} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
                self.session
            );
            let _ = stream.read(&mut [0; 1]);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        self.kill_chromium();
    }
}
