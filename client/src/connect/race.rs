//! Parallel attempts to connect to one node. The first attempt that succeeds is used.

use super::ConnectFailure;
use std::future::Future;
use std::time::Duration;
use tokio::task::JoinSet;

/// Delay before the next attempt starts in parallel.
///
/// An attempt that hangs, or that leads to the node's former address, must not use up the time of the others.
const HEAD_START: Duration = Duration::from_millis(100);

/// Starts the attempts in order. Returns the first attempt that succeeds.
///
/// The next attempt starts after [`HEAD_START`], or as soon as all attempts before it have failed.
pub(super) async fn first<T, W>(ways: impl IntoIterator<Item = W>) -> Result<T, ConnectFailure>
where
    T: Send + 'static,
    W: Future<Output = Result<T, ConnectFailure>> + Send + 'static,
{
    let mut under_way = JoinSet::new();
    let mut failure = None;
    for way in ways {
        under_way.spawn(way);
        // Dropping the set aborts the other attempts and closes their connections.
        let won = tokio::time::timeout(HEAD_START, first_success(&mut under_way, &mut failure)).await;
        if let Ok(Some(winner)) = won {
            return Ok(winner);
        }
    }
    match first_success(&mut under_way, &mut failure).await {
        Some(winner) => Ok(winner),
        None => Err(failure
            .unwrap_or_else(|| ConnectFailure::Unreachable("there is no address to connect to".to_owned()))),
    }
}

/// The first attempt that succeeds; `None` if all attempts have failed.
async fn first_success<T: 'static>(
    under_way: &mut JoinSet<Result<T, ConnectFailure>>,
    failure: &mut Option<ConnectFailure>,
) -> Option<T> {
    while let Some(ended) = under_way.join_next().await {
        match ended {
            Ok(Ok(winner)) => return Some(winner),
            Ok(Err(why)) => more_telling(failure, why),
            Err(_) => {
                more_telling(failure, ConnectFailure::Unreachable("the runtime is shutting down".to_owned()));
            }
        }
    }
    None
}

/// Keeps the more helpful failure: a server's error is more helpful than an unreachable server.
fn more_telling(kept: &mut Option<ConnectFailure>, why: ConnectFailure) {
    if matches!(kept, None | Some(ConnectFailure::Unreachable(_))) {
        *kept = Some(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[test]
    fn what_a_server_said_is_kept() {
        let silent = || ConnectFailure::Unreachable("nobody".to_owned());
        let mut kept = None;
        more_telling(&mut kept, silent());
        assert_eq!(kept, Some(silent()));
        more_telling(&mut kept, ConnectFailure::NoModule);
        more_telling(&mut kept, silent());
        assert_eq!(kept, Some(ConnectFailure::NoModule));
    }

    /// An attempt that takes `steps` head starts and then returns `end`. With `None` it hangs.
    async fn way(
        steps: u32,
        end: Option<Result<&'static str, ConnectFailure>>,
    ) -> Result<&'static str, ConnectFailure> {
        tokio::time::sleep(HEAD_START * steps).await;
        match end {
            Some(end) => end,
            None => pending().await,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_way_that_leads_somewhere_is_taken() {
        let refused = || Some(Err(ConnectFailure::NoModule));
        let cases = [
            (vec![way(0, Some(Ok("a"))), way(0, Some(Ok("b")))], Ok("a")),
            (vec![way(0, None), way(0, Some(Ok("b")))], Ok("b")),
            (vec![way(3, Some(Ok("a"))), way(0, refused()), way(9, Some(Ok("c")))], Ok("a")),
            (vec![way(0, refused()), way(2, Some(Ok("b")))], Ok("b")),
            (vec![way(0, refused()), way(2, refused())], Err(ConnectFailure::NoModule)),
        ];
        for (ways, end) in cases {
            assert_eq!(first(ways).await, end);
        }
        let nowhere = first(Vec::<std::future::Ready<Result<(), _>>>::new()).await;
        assert!(matches!(nowhere, Err(ConnectFailure::Unreachable(_))));
    }
}
