//! `redlock ui`: the page in a real browser, and the server behind it.

use crate::browser::Browser;
use crate::http::{get, talk};
use crate::processes::SIGTERM;
use crate::program::{Launcher, Running, names};
use redlock_tests::{Answer, Fleet, SOON, eventually};
use serde_json::Value;

/// Starts `redlock ui` on a free port, and returns its address.
fn start(redlock: &Launcher) -> (Running, String) {
    let mut ui = redlock.start(&["--json", "ui", "--listen", "127.0.0.1:0"]);
    let line: Value = serde_json::from_str(&ui.line()).expect("JSON");
    (ui, line["listening"].as_str().expect("an address").to_owned())
}

/// The row of a resource, as soon as the page has it and `is_wanted` says yes.
fn row(browser: &Browser, resource: &str, is_wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
    eventually(&format!("the page shows the lock {resource}"), SOON * 2, || {
        browser.rows("locks").into_iter().find(|row| row[0] == resource && is_wanted(row))
    })
}

/// Waits until the page shows this finding. The doctor looks every 30 s.
fn finding(browser: &Browser, words: &str) {
    eventually(&format!("the finding {words:?}"), SOON * 6, || {
        browser.text("findings").contains(words).then_some(())
    });
}

/// Waits until the page shows rates of the nodes.
fn charts(browser: &Browser, samples: usize) {
    eventually("the page shows requests", SOON * 12, || {
        let line = browser.value("document.querySelector('#charts path').getAttribute('d')");
        (line.as_str()?.matches(['M', 'L']).count() >= samples).then_some(())
    });
}

/// The state as the page gets it.
fn state(address: &str) -> Value {
    let answer = get(address, "/state.json");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    serde_json::from_str(body).expect("JSON")
}

#[test]
fn the_page_shows_nodes_locks_waiters_and_findings_live() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let hostile = "<img src=x onerror=\"document.title='broken'\">";
    redlock.run(&["acquire", "--ttl", "59m", "--label", hostile, "reports"]).succeeds();
    redlock.run(&["acquire", "--ttl", "59m", "--label", "web-3", "invoices"]).succeeds();
    let Some(browser) = Browser::start() else { return };
    let (ui, address) = start(&redlock);
    browser.open(&format!("http://{address}/"));

    eventually("the page has the state", SOON * 2, || {
        (browser.text("verdict") == "Locks can be granted: 3 of 3 nodes grant, 2 are needed").then_some(())
    });
    let nodes = browser.rows("nodes");
    assert_eq!(nodes.len(), 3);
    assert!(nodes.iter().all(|node| node[1] == "grants" && node[5] == "2"), "{nodes:?}");
    let reports = row(&browser, "reports", |_| true);
    assert_eq!((&*reports[1], &*reports[3], &*reports[6]), (hostile, "3 of 3", "0"));
    assert_eq!(reports[2], "1", "the fence: {reports:?}");
    assert!(reports[4].ends_with('s') || reports[4].contains("min"), "held for: {reports:?}");
    let left = reports[5].split(' ').next().and_then(|minutes| minutes.parse::<u32>().ok());
    assert!(reports[5].contains(" min") && left.is_some_and(|left| left > 40), "time left: {reports:?}");
    assert_eq!(browser.value("document.title"), "Redlock", "a label is text, and no script");
    assert_eq!(browser.value("document.images.length"), 0);

    // Later states arrive without a reload.
    let mut waiting = redlock.start(&["acquire", "--wait", "5m", "--label", "patient", "reports"]);
    row(&browser, "reports", |row| row[6] == "1");
    redlock.run(&["break", "--yes", "reports"]).succeeds();
    row(&browser, "reports", |row| row[1] == "patient");
    waiting.line();

    // The filter and the order.
    let filter = |text: &str| {
        browser.value(&format!(
            "(f => {{ f.value = '{text}'; f.dispatchEvent(new Event('input')); }})(document.getElementById('filter'))"
        ));
        browser.rows("locks").into_iter().map(|row| row[0].clone()).collect::<Vec<_>>()
    };
    assert_eq!(filter("web"), ["invoices"], "the filter also matches labels");
    assert_eq!(browser.text("lock-count"), "1 of 2");
    assert!(filter("nothing").is_empty());
    assert_eq!(browser.text("locks-empty"), "No lock matches the filter.");
    assert_eq!(filter(""), ["invoices", "reports"]);
    browser.value("document.querySelector('#locks th button').click()");
    assert_eq!(filter(""), ["reports", "invoices"], "descending by name");

    // A node that goes down.
    fleet[2].kill();
    eventually("the page shows that a node is down", SOON * 2, || {
        let verdict = "Locks can be granted: 2 of 3 nodes grant, 2 are needed";
        (browser.rows("nodes")[2][1].starts_with("down: ") && browser.text("verdict") == verdict)
            .then_some(())
    });
    finding(&browser, &format!("error [unreachable] {}", fleet[2].url().trim_start_matches("redis://")));

    // Requests were counted meanwhile. The page asks nobody but its server, and breaks no rule of its policy.
    charts(&browser, 2);
    let elsewhere = browser.value(
        "performance.getEntriesByType('resource').filter(entry => !entry.name.startsWith(location.origin)).length",
    );
    assert_eq!(elsewhere, 0);
    let console = browser.console();
    assert!(console.is_empty(), "{console:?}");

    // Without a majority the list may be incomplete, and the page says so.
    fleet[1].kill();
    eventually("the page says that a majority is missing", SOON * 2, || {
        let omission = browser.text("omission");
        omission
            .starts_with("Not all locks are shown: 1 of 3 nodes showed their locks, 2 are needed")
            .then_some(())
    });
    row(&browser, "invoices", |row| row[3] == "1 of 3, no majority");
    assert!(browser.text("verdict").starts_with("No lock can be granted: 1 of 3 nodes grant"));

    // A page without a server says so.
    ui.signal(SIGTERM);
    ui.finish().succeeds();
    eventually("the page says that it is stale", SOON * 2, || {
        browser.text("freshness").starts_with("No answer from redlock ui").then_some(())
    });
    assert_eq!(browser.value("document.body.className"), "stale");
}

/// On a phone, every table fits, and every value keeps its name. With REDLOCK_SCREENSHOT=FOLDER the test writes the
/// pictures of the documentation.
#[test]
fn the_page_fits_a_phone() {
    let fleet = Fleet::start(5);
    let redlock = Launcher::of(&fleet);
    for (resource, label) in
        [("reports:daily", "worker-7 pid 4121"), ("invoices", "web-3"), ("thumbnails", "gpu-1")]
    {
        redlock.run(&["acquire", "--ttl", "59m", "--label", label, resource]).succeeds();
    }
    let waiters: Vec<Running> =
        (0..2).map(|_| redlock.start(&["acquire", "--wait", "5m", "invoices"])).collect();
    let Some(browser) = Browser::start() else { return };
    let (_ui, address) = start(&redlock);
    browser.open(&format!("http://{address}/"));
    row(&browser, "invoices", |row| row[6] == "2");
    let folder = std::env::var_os("REDLOCK_SCREENSHOT").map(std::path::PathBuf::from);
    let shoot = |name: &str| {
        if let Some(folder) = &folder {
            browser.screenshot(&folder.join(name));
        }
    };
    if folder.is_some() {
        let load = redlock.start(&["bench", "--tasks", "2", "--contended", "--duration", "80s"]);
        browser.resize(1200, 1120, false);
        finding(&browser, "same-host");
        charts(&browser, 14);
        shoot("ui.png");
        load.signal(SIGTERM);
    }
    browser.resize(390, 844, true);
    let overflow =
        browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
    assert_eq!(overflow, 0, "the page is wider than the screen");
    let name = browser
        .value("getComputedStyle(document.querySelectorAll('#locks tbody td')[3], '::before').content");
    assert_eq!(name, "\"nodes\"");
    shoot("ui-phone.png");
    drop(waiters);
}

#[test]
fn the_state_has_the_results_of_status_ls_and_doctor() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    // A browser would round this fence.
    let fence = ((1_u64 << 53) + 1).to_string();
    for node in fleet.iter() {
        node.connect().call_strs(&format!("REDLOCK.ACQUIRE job owner 600000 FENCE {fence}"));
    }
    let (ui, address) = start(&redlock);
    let state = eventually("the doctor has looked", SOON * 2, || {
        Some(state(&address)).filter(|state| !state["doctor"].is_null())
    });
    assert_eq!(names(&state), ["activity", "age_s", "doctor", "ls", "status"]);
    assert!(state["ls"]["error"].is_null(), "{state}");
    let lock = &state["ls"]["locks"][0];
    assert_eq!(
        (&lock["resource"], &lock["held"], &lock["holders"]),
        (&"job".into(), &true.into(), &3.into())
    );
    assert_eq!(lock["fence"], *fence, "exact, as a string");
    assert_eq!(state["status"]["nodes"][0]["fence"], lock["fence"]);
    let expected = redlock.run(&["--json", "doctor"]).json();
    assert_eq!(state["doctor"]["worst"], expected["worst"]);
    drop(ui);
}

#[test]
fn the_state_counts_hand_offs_and_contention() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    redlock.run(&["acquire", "--owner-file", "lock", "job"]).succeeds();
    let (_ui, address) = start(&redlock);
    // The second sample of the counters is 5 s after the first.
    let rates =
        || -> Vec<Value> { state(&address)["activity"]["rates"].as_array().cloned().unwrap_or_default() };
    eventually("the first rates", SOON * 4, || (!rates().is_empty()).then_some(()));
    let waiting = redlock.start(&["acquire", "--wait", "5m", "job"]);
    eventually("a waiter", SOON, || (state(&address)["ls"]["locks"][0]["waiters"] == 1).then_some(()));
    redlock.run(&["release", "--owner-file", "lock", "job"]).succeeds();
    waiting.finish().succeeds();
    eventually("the hand-off is counted", SOON * 4, || {
        let sum = |name: &str| rates().iter().filter_map(|rate| rate[name].as_f64()).sum::<f64>();
        (sum("handoffs") > 0.0 && sum("waits") > 0.0 && sum("contention") > 0.0).then_some(())
    });
}

#[test]
fn without_permissions_the_state_says_what_is_missing() {
    let fleet = Fleet::start(3);
    for node in fleet.iter() {
        let rule = "ACL SETUSER few on >secret ~* -@all +hello +ping +client|setname +redlock.node";
        assert_eq!(node.connect().call_strs(rule), Answer::ok());
    }
    let login = |url: &String| url.replace("redis://", "redis://few:secret@");
    let urls: Vec<String> = fleet.urls().iter().map(login).collect();
    let redlock = Launcher::at(&urls);
    let (_ui, address) = start(&redlock);
    let state = state(&address);
    assert_eq!(state["status"]["granting"], 3, "{state}");
    let refused = state["ls"]["refused"].as_array().expect("refusals");
    assert_eq!(refused.len(), 3, "{state}");
    let error = state["ls"]["error"].as_str().expect("an error");
    assert!(error.starts_with("0 of 3 nodes showed their locks, 2 are needed"), "{error}");
    assert_eq!(state["activity"]["rates"], Value::Array(vec![]), "no counters are not zero requests");
}

#[test]
fn the_server_answers_only_reads_and_local_names() {
    let fleet = Fleet::start(1);
    let redlock = Launcher::of(&fleet);
    let (ui, address) = start(&redlock);
    let ask = |host: &str, path: &str| {
        talk(&address, format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes())
    };
    let page = ask(&address, "/");
    let head = page.split_once("\r\n\r\n").expect("a head").0.to_lowercase();
    assert!(head.starts_with("http/1.1 200") && head.contains("text/html"), "{head}");
    assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
    assert!(!head.contains("access-control-allow-origin"), "{head}");
    // A hostile web site can let its name lead to this address, and read what a browser here is shown.
    for path in ["/", "/state.json", "/metrics"] {
        assert!(ask("evil.example", path).starts_with("HTTP/1.1 403"), "{path}");
        assert!(ask("localhost:9465", path).starts_with("HTTP/1.1 200"), "{path}");
    }
    assert!(ask("localhost", "/metrics").contains("redlock_node_up"));
    assert!(ask("localhost", "/elsewhere").starts_with("HTTP/1.1 404"));
    let posted =
        b"POST /state.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert!(talk(&address, posted).starts_with("HTTP/1.1 405"));
    ui.signal(SIGTERM);
    ui.finish().succeeds();

    // The operator can allow a name.
    let mut ui = redlock.start(&["--json", "ui", "--listen", "127.0.0.1:0", "--host", "console.example"]);
    let line: Value = serde_json::from_str(&ui.line()).expect("JSON");
    let named = line["listening"].as_str().expect("an address").to_owned();
    let page = b"GET / HTTP/1.1\r\nHost: console.example:9465\r\nConnection: close\r\n\r\n";
    assert!(talk(&named, page).starts_with("HTTP/1.1 200"));

    // The exporter, which often listens for other machines, never shows the name of a lock.
    let mut exporter = redlock.start(&["--json", "exporter", "--listen", "127.0.0.1:0"]);
    let line: Value = serde_json::from_str(&exporter.line()).expect("JSON");
    let address = line["listening"].as_str().expect("an address");
    assert!(get(address, "/state.json").starts_with("HTTP/1.1 404"));
    assert!(!get(address, "/").contains("<html"));
}
