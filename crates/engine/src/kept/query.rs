//! Queries that client and server keep, prepared, until the client has an input: a session may hold several, by number.
//!
//! ```text
//! Ready ──keep_query──> Ready + Kept          Ready or Runner, with Kept ──run──> Prediction
//! Connected ──join(Ticket)──> Runner
//! ```
//!
//! The session that prepares and a [`Runner`], a second connection, work side by side: a query that is there does not
//! wait for one that is being prepared. Each query has a number, both parties count, and each takes a query away before
//! it sends anything of it. What is kept is in memory only, and gone when the session that prepared it ends.

use jaguar_graph::bundle::ModelId;
use jaguar_wire::{Channel, Stage};

use crate::client::{Connected, Prediction, Query, Ready, give_up, only, run_query};
use crate::error::EngineError;
use crate::family::Family;
use crate::handshake::client as handshake;
use crate::kept::stock::{NoRoom, Stock, prepared_bytes};
use crate::message::{self, Accept, MAX_MESSAGE, Purpose, Request, Secret};
use crate::progress::Progress;
use crate::report::Report;

/// A prepared query that both parties keep. It serves one input, on the session that prepared it or a [`Runner`] that
/// joined it.
pub struct Kept {
    query: Query,
    id: u64,
    family: Family,
}

/// Lets another connection of this client run what a session has prepared.
pub struct Ticket {
    secret: Secret,
    model: ModelId,
    plan: [u8; 32],
    family: Family,
}

/// A connection that runs queries which another session has prepared, and nothing else.
pub struct Runner {
    connected: Connected,
    family: Family,
    stock: Stock,
}

/// A session with the query that was prepared, or why none was.
pub type Keeping = (Ready, Result<Kept, NoRoom>);

impl Ready {
    /// Prepares the session's next query, as [`prepare_query`](Self::prepare_query) does, and has both parties keep it.
    /// Where the server has no room the session goes on without.
    ///
    /// # Errors
    /// When the connection fails, or the server counts otherwise. The session is over then, with all that it kept.
    pub fn keep_query(mut self, progress: &mut dyn Progress) -> Result<Keeping, EngineError> {
        match self.keep(progress) {
            Ok(kept) => Ok((self, kept)),
            Err(e) => Err(give_up(self.channel(), e)),
        }
    }

    fn keep(&mut self, progress: &mut dyn Progress) -> Result<Result<Kept, NoRoom>, EngineError> {
        let (id, timeline, times) = (self.next_kept, self.timeline, self.begin());
        let channel = self.channel();
        channel.enter(Stage::Offline, "keeping");
        channel.send_message(&Request::Prepare { id, timeline })?;
        let room: Result<(), NoRoom> = channel.recv_message("whether there is room", MAX_MESSAGE)?;
        if let Err(why) = room {
            return Ok(Err(why));
        }
        let mut query = self.prepare_asked(times, progress)?;
        let channel = self.channel();
        channel.enter(Stage::Offline, "keeping");
        let message::Kept { id: theirs, stock } = channel.recv_message("that it is kept", MAX_MESSAGE)?;
        if theirs != id {
            return Err(EngineError::PeerMisbehaved(format!(
                "the server has prepared query {theirs}, this side query {id}"
            )));
        }
        query.absorb(channel.take_stats());
        self.next_kept += 1;
        self.stock = stock;
        Ok(Ok(Kept { query, id, family: self.family.clone() }))
    }

    /// Runs a kept query on `input`, integers `[C, H, W]` in the activation range.
    ///
    /// # Errors
    /// As [`Prepared::run`](crate::client::Prepared::run), and when the query is another session's.
    pub fn run_kept(
        self,
        kept: Kept,
        input: &[i64],
        progress: &mut dyn Progress,
    ) -> Result<(Prediction, Report, Self), EngineError> {
        let (predictions, report, ready) = self.run_kept_batch(kept, input, progress)?;
        Ok((only(predictions)?, report, ready))
    }

    /// As [`run_kept`](Self::run_kept), on as many images as the session's queries have, `[image, C, H, W]`; a prediction for each.
    ///
    /// # Errors
    /// As there.
    pub fn run_kept_batch(
        mut self,
        kept: Kept,
        input: &[i64],
        progress: &mut dyn Progress,
    ) -> Result<(Vec<Prediction>, Report, Self), EngineError> {
        let result = kept.run(&mut self.connected, &self.family, input, progress);
        match result {
            Ok((predictions, report)) => {
                self.stock = report.server_keeps;
                Ok((predictions, report, self))
            }
            Err(e) => Err(give_up(self.channel(), e)),
        }
    }

    /// What the server said last of what it keeps for this client.
    pub fn server_keeps(&self) -> Stock {
        self.stock
    }

    /// What another connection of this client joins with.
    ///
    /// # Errors
    /// When the connection fails. The session is over then.
    pub fn ticket(mut self) -> Result<(Ticket, Self), EngineError> {
        let ask = |channel: &mut Channel| -> Result<Secret, EngineError> {
            channel.enter(Stage::Client, "ticket");
            channel.send_message(&Request::Ticket)?;
            Ok(channel.recv_message("ticket", MAX_MESSAGE)?)
        };
        match ask(self.channel()) {
            Ok(secret) => {
                let (model, plan) = (self.connected.model(), self.plan().digest());
                Ok((Ticket { secret, model, plan, family: self.family.clone() }, self))
            }
            Err(e) => Err(give_up(self.channel(), e)),
        }
    }

    /// Whether the connection still stands, as far as this side can know without asking.
    ///
    /// # Errors
    /// Why it does not.
    pub(crate) fn check(&mut self) -> Result<(), EngineError> {
        check(self.channel())
    }
}

impl Connected {
    /// Joins the session that `ticket` is of, to run what it prepares.
    ///
    /// # Errors
    /// When the connection fails, the model is another one, or the session has ended.
    pub fn join(mut self, ticket: &Ticket) -> Result<Runner, EngineError> {
        match self.try_join(ticket) {
            Ok(stock) => Ok(Runner { connected: self, family: ticket.family.clone(), stock }),
            Err(e) => Err(give_up(self.channel(), e)),
        }
    }

    fn try_join(&mut self, ticket: &Ticket) -> Result<Stock, EngineError> {
        let plan = self.plan().digest();
        if (self.model(), plan) != (ticket.model, ticket.plan) {
            let what = EngineError::Input("the server has another model now, or another plan of it".into());
            return Err(EngineError::AtStep { step: self.channel().step(), source: Box::new(what) });
        }
        let channel = self.channel();
        handshake::choose_shares(channel)?;
        let secret = Secret(ticket.secret.0);
        channel.send_message(&Accept { plan, purpose: Purpose::Join(secret) })?;
        Ok(channel.recv_message("what is kept", MAX_MESSAGE)?)
    }
}

impl Runner {
    /// Runs a kept query on `input`, integers `[image, C, H, W]` in the activation range: as many images as the session's queries have. A
    /// prediction for each.
    ///
    /// # Errors
    /// As [`Ready::run_kept`].
    pub fn run_batch(
        mut self,
        kept: Kept,
        input: &[i64],
        progress: &mut dyn Progress,
    ) -> Result<(Vec<Prediction>, Report, Self), EngineError> {
        match kept.run(&mut self.connected, &self.family, input, progress) {
            Ok((predictions, report)) => {
                self.stock = report.server_keeps;
                Ok((predictions, report, self))
            }
            Err(e) => Err(give_up(self.connected.channel(), e)),
        }
    }

    /// As [`run_batch`](Self::run_batch), in a session for single images.
    ///
    /// # Errors
    /// As there.
    pub fn run(
        self,
        kept: Kept,
        input: &[i64],
        progress: &mut dyn Progress,
    ) -> Result<(Prediction, Report, Self), EngineError> {
        let (predictions, report, runner) = self.run_batch(kept, input, progress)?;
        Ok((only(predictions)?, report, runner))
    }

    /// What the server said last of what it keeps for this client.
    pub fn server_keeps(&self) -> Stock {
        self.stock
    }

    /// Says good-bye.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn leave(mut self) -> Result<(), EngineError> {
        let channel = self.connected.channel();
        channel.send_message(&Request::Leave)?;
        Ok(channel.flush()?)
    }

    /// As [`Ready::check`].
    pub(crate) fn check(&mut self) -> Result<(), EngineError> {
        check(self.connected.channel())
    }

    /// For tests that break the protocol.
    #[cfg(test)]
    pub(crate) fn channel(&mut self) -> &mut Channel {
        self.connected.channel()
    }
}

impl Kept {
    /// The query's number in its session.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Another number, for tests that break the protocol.
    #[cfg(test)]
    pub(crate) fn renumbered(self, id: u64) -> Self {
        Self { id, ..self }
    }

    /// What it holds at this party, in bytes: see [`prepared_bytes`].
    pub fn bytes(plan: &jaguar_plan::Plan) -> u64 {
        prepared_bytes(plan)[0]
    }

    fn run(
        self,
        connected: &mut Connected,
        family: &Family,
        input: &[i64],
        progress: &mut dyn Progress,
    ) -> Result<(Vec<Prediction>, Report), EngineError> {
        let Self { query, id, family: own } = self;
        if !own.is(family) {
            return Err(EngineError::Input("this query was prepared in another session".into()));
        }
        connected.check_input(input)?;
        let channel = connected.channel();
        channel.enter(Stage::Online, "request");
        channel.send_message(&Request::Run { id })?;
        run_query(connected, query, Some(id), (input, progress, &mut |_, _| ()))
    }
}

/// Nothing comes unless it is asked for: what is there to receive is why the connection has ended.
fn check(channel: &mut Channel) -> Result<(), EngineError> {
    match channel.wait_for_input(std::time::Duration::ZERO)? {
        false => Ok(()),
        true => {
            Err(EngineError::PeerMisbehaved("the server says something that it was not asked for".into()))
        }
    }
}
