//! Acquiring, extending, losing and releasing locks, on nodes in memory and a clock that a test can advance.

#![allow(clippy::expect_used)]

mod acquiring;
#[path = "../common/mod.rs"]
mod common;
mod freeing;
mod keeping;
mod looking;
mod sharing;

/// Polls a future once.
async fn futures_poll<F: std::future::Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(match future.as_mut().poll(cx) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
