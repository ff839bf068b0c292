//! This shard's links to all other members.

use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc};

use queen_fabric::{
    members::{Member, Members},
    rt::{self, Task},
};

use super::link::{self, Link};
use crate::{error::ApiError, shard::Shard};

/// The links, by the member's id.
#[derive(Default)]
pub(crate) struct Links(RefCell<HashMap<Arc<str>, Kept>>);

/// A link and the task that keeps it. Dropped, it ends, and whoever waits for an answer over it is told.
struct Kept {
    link: Rc<Link>,
    _task: Task<()>,
}

impl Links {
    /// The link to a member.
    pub(super) fn to(&self, member: &Member) -> Result<Rc<Link>, ApiError> {
        self.named(&member.id)
            .ok_or_else(|| ApiError::forward_failed(&format!("Node {} owns it, and is not linked to yet", member.id)))
    }

    /// The link to the member of an id, if there is one.
    pub(super) fn named(&self, id: &str) -> Option<Rc<Link>> {
        self.0.borrow().get(id).map(|kept| Rc::clone(&kept.link))
    }

    /// Keeps a link to each other member, and to nobody else.
    pub(crate) fn follow(&self, shard: &Rc<Shard>, members: &Members) {
        let mut others: Vec<_> = members.members.iter().filter(|member| !members.is_me(member)).cloned().collect();
        // Who has just left may still have what is this node's now, and has to be asked.
        for former in shard.holding.former_members() {
            if former.id != members.me && !others.iter().any(|member| member.id == former.id) {
                others.push(former);
            }
        }
        let stays = |kept: &Kept| others.iter().any(|member| member == kept.link.member());
        let gone: Vec<_> = {
            let mut links = self.0.borrow_mut();
            let ids: Vec<_> = links.iter().filter(|(_, kept)| !stays(kept)).map(|(id, _)| Arc::clone(id)).collect();
            ids.iter().filter_map(|id| links.remove(id)).collect()
        };
        // Tells those who wait, who may look for another link.
        drop(gone);
        for member in &others {
            if self.named(&member.id).is_none() {
                let link = Rc::new(Link::new(member.clone()));
                let task = rt::spawn_local(link::keep(Rc::clone(shard), Rc::clone(&link)));
                self.0.borrow_mut().insert(Arc::clone(&member.id), Kept { link, _task: task });
            }
        }
    }
}
