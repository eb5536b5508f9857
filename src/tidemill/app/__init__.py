"""The application: the one place where a store, a client and workers are put together.

`application` is what one has: settings, a store, a client. Each of the others is what can be done with it:
register tasks, declare queues, pools and schedules, put something around the handlers, send jobs, look at
them, tell others of them, work on them. `stores` picks the store, by its URL.
"""

from __future__ import annotations

from tidemill.app.declaring import Declares
from tidemill.app.looking import Looks
from tidemill.app.registering import Registers
from tidemill.app.sending import Sends
from tidemill.app.surrounding import Surrounds
from tidemill.app.telling import Tells
from tidemill.app.working import Works


class Tidemill(Registers, Declares, Surrounds, Sends, Looks, Works, Tells):
    """Tasks, queues and the store they live in.

    `url` names the store, such as `sqlite:///jobs.db`. Without it the environment does
    (TIDEMILL_URL), or a `tidemill.toml` in the working directory, or it is `sqlite:///tidemill.db`
    there. `config` names another TOML file. The store is opened by the first use; `async with app`
    closes it again.
    """
