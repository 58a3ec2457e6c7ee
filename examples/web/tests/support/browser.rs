//! Chromium without a window, which is stopped however the test ends.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;
use thirtyfour::prelude::*;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

pub struct Browser {
    pub driver: WebDriver,
    process: DriverProcess,
    _profile: TempDir,
}

/// ChromeDriver, in a process group of its own with the browser that it starts.
struct DriverProcess(Child);

impl Browser {
    pub async fn start() -> Self {
        let [chromedriver, chromium] = ["chromedriver", "chromium"].map(|program| {
            find(program).unwrap_or_else(|| {
                panic!("no {program} is installed: apt-get install chromium chromium-driver")
            })
        });
        let (process, port) = DriverProcess::start(&chromedriver).await;
        let profile = TempDir::new().expect("a temporary folder");
        let mut capabilities = DesiredCapabilities::chrome();
        let profile_is = format!("--user-data-dir={}", profile.path().display());
        // As root, as in a container, Chromium's sandbox does not start; and a small /dev/shm is no reason to fail.
        for argument in [
            "--headless",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            &profile_is,
        ] {
            capabilities.add_arg(argument).expect("an argument");
        }
        let chromium = chromium.display().to_string();
        capabilities.set_binary(&chromium).expect("a path");
        let logs = json!({ "browser": "ALL" });
        capabilities
            .set("goog:loggingPrefs", logs)
            .expect("a setting");
        let driver = WebDriver::new(format!("http://127.0.0.1:{port}"), capabilities).await;
        let browser = Browser {
            driver: driver.expect("Chromium starts"),
            process,
            _profile: profile,
        };
        browser.size(1280, 900, 1).await;
        browser
    }

    /// Makes the window as large as a desktop's, or a phone's.
    pub async fn size(&self, width: u32, height: u32, scale: u32) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": scale > 1 });
        self.send("Emulation.setDeviceMetricsOverride", metrics)
            .await;
    }

    /// Light or dark.
    pub async fn prefer(&self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.send("Emulation.setEmulatedMedia", features).await;
    }

    pub async fn send(&self, command: &str, parameters: Value) {
        let sent = self.driver.cdp().send_raw(command, parameters).await;
        sent.unwrap_or_else(|error| panic!("{command}: {error}"));
    }

    pub async fn open(&self, url: String) {
        self.driver.goto(url).await.expect("a page");
    }

    pub async fn find(&self, css: &str) -> WebElement {
        let found = self.driver.find(By::Css(css.to_owned())).await;
        found.unwrap_or_else(|error| panic!("{css}: {error}"))
    }

    pub async fn click(&self, css: &str) {
        self.find(css).await.click().await.expect("a click");
    }

    pub async fn text(&self, css: &str) -> String {
        // In one command, since the page may change between two.
        let script = "return document.querySelector(arguments[0])?.textContent ?? ''";
        let text = self.driver.execute(script, vec![json!(css)]).await;
        text.and_then(|text| text.convert()).expect("a text")
    }

    pub async fn number(&self, css: &str) -> i64 {
        let text = self.text(css).await;
        let number = text.replace(',', "").parse();
        number.unwrap_or_else(|_| panic!("{css} is no number: {text:?}"))
    }

    /// The value of a JavaScript expression on the page.
    pub async fn eval<T: serde::de::DeserializeOwned>(&self, expression: &str) -> T {
        let value = self
            .driver
            .execute(format!("return {expression}"), vec![])
            .await;
        value.and_then(|value| value.convert()).expect("a value")
    }

    pub async fn press(&self, key: Key) {
        let element = self
            .driver
            .active_element()
            .await
            .expect("an element with the focus");
        element.send_keys(key + "").await.expect("a key");
    }

    /// Into `target/screenshots`.
    pub async fn screenshot(&self, name: &str) {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("screenshots");
        std::fs::create_dir_all(&folder).expect("a folder");
        let taken = self.driver.screenshot(&folder.join(name)).await;
        taken.expect("a screenshot");
    }

    /// Ends it; checks that the browser reported no error, such as a violation of the page's own policy.
    pub async fn quit(self) {
        let complaints = self.driver.browser_log().await.expect("a log");
        assert!(complaints.is_empty(), "{complaints:?}");
        self.driver.quit().await.expect("it ends");
        drop(self.process);
    }
}

impl DriverProcess {
    /// Starts it, and again if it ends: another may take the port that it has found free for IPv4 and not yet bound for IPv6.
    async fn start(chromedriver: &Path) -> (Self, u16) {
        for _ in 0..10 {
            let mut process = DriverProcess(
                Command::new(chromedriver)
                    .arg("--port=0")
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null())
                    .process_group(0)
                    .spawn()
                    .expect("ChromeDriver starts"),
            );
            if let Some(port) = process.port().await {
                return (process, port);
            }
        }
        panic!("ChromeDriver ended without a word of its port");
    }

    /// The port that it listens on, unless it ends before.
    async fn port(&mut self) -> Option<u16> {
        let output = self.0.stdout.take().expect("it is piped");
        let mut lines = BufReader::new(output).lines();
        let port = async {
            while let Some(line) = lines.next_line().await.expect("its output") {
                if let Some((_, port)) = line.split_once("started successfully on port ") {
                    return Some(port.trim_end_matches('.').parse().expect("a port"));
                }
            }
            None
        };
        let port = timeout(Duration::from_secs(30), port).await;
        port.expect("ChromeDriver starts within 30 seconds")
    }
}

impl Drop for DriverProcess {
    fn drop(&mut self) {
        let group = self.0.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL); // an error says that all have ended
        }
    }
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}
