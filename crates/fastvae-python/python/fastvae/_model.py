"""`FastVAE`: the variational autoencoder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from . import _fastvae
from ._data import UserItems, interactions
from ._progress import Progress
from ._recommender import Callback, Reason, Recommender, as_json, fit_columns

if TYPE_CHECKING:
    from typing_extensions import Self


class FastVAE(Recommender):
    """A variational autoencoder that draws its negatives from an inverted multi-index (Chen et al., WWW 2022).

    The settings and their defaults are those of the library's ``Config``, where ``random_state`` is called ``seed`` and
    ``num_threads`` ``threads``.

    Parameters
    ----------
    model
        ``"fastvae"``: sampled softmax; ``"mult-vae"``: full softmax (Liang et al., 2018).
    hidden, latent
        Width of the hidden layer; size of the latent vector and of the item vectors.
    encoder_rank
        Columns of the encoder's table, which a dense layer then maps to the hidden layer's width; 0 for a table as wide as
        the hidden layer.
    activation
        ``"relu"`` or ``"tanh"``.
    dropout
        Probability that an input item is left out in a training step.
    latent_samples
        Latent draws per user and step.
    item_bias
        Whether each item has a bias beside its vector.
    proposal
        Where negatives come from: one of `fastvae.proposals.KINDS`.
    estimator
        ``"stratified"`` or ``"sampled"`` (the paper).
    negatives
        Negatives per user and latent draw.
    codewords, codebooks, quantizer
        Codewords per codebook, number of codebooks (1 to 4), and ``"product"`` or ``"residual"``.
    popularity
        The function of an item's count that popularity proposals weigh by: ``"log"``, ``"count"`` or ``"power"``.
    kl
        Weight of the KL divergence: ``{"beta": ...}`` or ``{"gamma": ...}``, and ``"anneal_steps"``. Chosen from the
        data by default.
    optimizer
        ``"lazy-adam"`` or ``"adam"``.
    moments
        What Adam keeps for the tables: ``"compact"`` (first moments in sixteen bits, one second moment for each row) or
        ``"full"``, which doubles their memory.
    learning_rate, decay
        Step size at the start, and how it falls: ``{"schedule": "linear" | "step" | "constant", "factor": ...,
        "every": ...}``.
    weight_decay, weight_decay_mode
        Pull of the parameters towards zero, ``"coupled"`` or ``"decoupled"``.
    clip
        Largest norm of one row's gradient.
    batch, epochs
        Users per step; passes over the users, at most.
    patience, validate_every, validation_users
        Validations in a row without progress before training stops (0: never), epochs between them, and users, at
        most, that something is held out of for them.
    random_state
        Seed of everything; None draws one.
    num_threads
        Worker threads, 0 for one per core. The result does not depend on it.
    refresh_every
        Epochs between refreshes of the index; 0 for as many as it takes to draw every item a few times.
    device
        What trains: ``"auto"`` (a GPU where one can be used), ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.

    Examples
    --------
    >>> import fastvae
    >>> plays = fastvae.datasets.generate(users=300, items=200, interactions=6000)
    >>> model = fastvae.FastVAE(hidden=32, latent=16, epochs=5, codewords=8).fit(plays, show_progress=False)
    >>> model
    FastVAE(hidden=32, latent=16, codewords=8, epochs=5)
    >>> model.item_factors.shape
    (200, 16)
    >>> len(model.history_["loss"])
    5
    """

    _kind: ClassVar[str] = "fastvae"

    def __init__(
        self,
        *,
        model: str = "fastvae",
        hidden: int = 1000,
        latent: int = 256,
        encoder_rank: int = 0,
        activation: str = "relu",
        dropout: float = 0.5,
        latent_samples: int = 1,
        item_bias: bool = False,
        proposal: str = "midx-popularity",
        estimator: str = "stratified",
        negatives: int = 500,
        codewords: int = 32,
        codebooks: int = 2,
        quantizer: str = "product",
        popularity: str = "log",
        kl: Mapping[str, float] | None = None,
        optimizer: str = "lazy-adam",
        moments: str = "compact",
        learning_rate: float = 2e-3,
        decay: Mapping[str, Any] | None = None,
        weight_decay: float = 0.01,
        weight_decay_mode: str = "coupled",
        clip: float | None = None,
        batch: int = 512,
        epochs: int = 100,
        patience: int = 4,
        validate_every: int = 5,
        validation_users: int = 1000,
        random_state: int | None = 0,
        num_threads: int = 0,
        refresh_every: int = 0,
        device: str = "auto",
    ) -> None:
        self.model = model
        self.hidden = hidden
        self.latent = latent
        self.encoder_rank = encoder_rank
        self.activation = activation
        self.dropout = dropout
        self.latent_samples = latent_samples
        self.item_bias = item_bias
        self.proposal = proposal
        self.estimator = estimator
        self.negatives = negatives
        self.codewords = codewords
        self.codebooks = codebooks
        self.quantizer = quantizer
        self.popularity = popularity
        self.kl = kl
        self.optimizer = optimizer
        self.moments = moments
        self.learning_rate = learning_rate
        self.decay = decay
        self.weight_decay = weight_decay
        self.weight_decay_mode = weight_decay_mode
        self.clip = clip
        self.batch = batch
        self.epochs = epochs
        self.patience = patience
        self.validate_every = validate_every
        self.validation_users = validation_users
        self.random_state = random_state
        self.num_threads = num_threads
        self.refresh_every = refresh_every
        self.device = device

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """The paper's settings: 200-32, constant beta, 200 epochs on all of the training data."""
        settings = json.loads(_fastvae.default_config("paper"))
        settings["random_state"], settings["num_threads"] = settings.pop("seed"), settings.pop("threads")
        return cls(**(settings | changes))

    def fit(
        self,
        user_items: UserItems,
        validation: UserItems = None,
        show_progress: bool = True,
        callback: Callback | None = None,
        *,
        user_col: str | None = None,
        item_col: str | None = None,
        weight_col: str | None = None,
        timestamp_col: str | None = None,
    ) -> Self:
        """Learn from interactions.

        Parameters
        ----------
        user_items
            A SciPy sparse matrix (users x items; values are weights), ``(users, items[, weights])`` columns, a pandas,
            polars or Arrow table, the path of a file, or `Interactions`.
        validation
            Held-out interactions of the same users, to stop by. By default, with ``patience`` above 0, a small part of
            ``user_items`` is held out.
        show_progress
            Whether a bar is shown.
        callback
            Called after each epoch with a dict of what it saw (`history_` has the same keys). A true answer ends
            training: the parameters of the best validation are kept, without one the latest. What it raises ends the fit.
        user_col, item_col, weight_col, timestamp_col
            Columns of a table or file.

        Returns
        -------
        FastVAE
            Itself.

        Raises
        ------
        ValueError
            For settings or data that cannot work.
        FloatingPointError
            If training diverges.
        KeyboardInterrupt
            At Ctrl-C, within a step; the model is then as it was before.
        """
        columns = fit_columns(user_col, item_col, weight_col, timestamp_col)
        data = interactions(user_items, columns)
        held = None
        if validation is not None:
            held = interactions(validation, columns, users=data.user_ids, items=data.item_ids)
        with Progress(type(self).__name__, self.epochs, show_progress) as progress:

            def observer(message: str) -> bool:
                event = json.loads(message)
                if "step" in event:
                    progress.at(event["epoch"] - 1 + event["step"] / event["n_steps"], loss=event["loss"])
                    return False
                progress.at(event["epoch"], loss=event["loss"], validation=event["validation"])
                return bool(callback(_flat(event))) if callback is not None else False

            settings = self._settings() | {"threads": self.num_threads}
            trained = _fastvae.train(data, as_json(settings), held, observer)
        self._take(trained, columns)
        return self

    @classmethod
    def _from_file(cls, trained: _fastvae.Recommender, settings: Mapping[str, Any]) -> Self:
        # None stands for the library's own, which a file spells out.
        own = json.loads(_fastvae.default_config())
        nested = {name: None for name in ("kl", "decay") if settings[name] == own[name]}
        return super()._from_file(trained, {**settings, **nested})

    @property
    def history_(self) -> dict[str, list[Any]]:
        """What every epoch saw, column by column: ``pandas.DataFrame(model.history_)``."""
        epochs = [_flat(epoch) for epoch in json.loads(self._trained.description())["epochs"]]
        names = dict.fromkeys(name for epoch in epochs for name in epoch)
        return {name: [epoch.get(name) for epoch in epochs] for name in names}

    def explain(self, userid_or_history: Any, itemid: Any, N: int = 10) -> list[Reason]:
        """Why an item is recommended: the items of the history that speak for it, strongest first.

        Exact: what the item's score loses when each item of the history is left out.

        Parameters
        ----------
        userid_or_history
            A training user, or a list of items.
        itemid
            The recommended item.
        N
            How many reasons, at most.

        Examples
        --------
        >>> import fastvae
        >>> plays = fastvae.datasets.generate(users=300, items=200, interactions=6000)
        >>> model = fastvae.FastVAE(hidden=32, latent=16, epochs=5, codewords=8).fit(plays, show_progress=False)
        >>> ids, _ = model.recommend(history=[3, 5, 8], N=1)
        >>> reasons = model.explain([3, 5, 8], ids[0])
        >>> all(reason.item in {3, 5, 8} for reason in reasons)
        True
        """
        if np.ndim(userid_or_history) == 0:
            histories, rows, _, _ = self._viewers(userid_or_history, None, None)
        else:
            histories, rows, _, _ = self._viewers(None, None, userid_or_history)
        item = int(self._items(itemid)[0])
        if not 0 <= item < self.n_items:
            raise IndexError(f"item {item} is out of range; there are {self.n_items}")
        if not 0 <= rows[0] < histories.n_users:
            raise IndexError(f"user {rows[0]} is out of range; there are {histories.n_users}")
        reasons = self._trained.explain(histories, int(rows[0]), item, N, self.num_threads)
        named = self._named(np.array([reason[0] for reason in reasons], dtype=np.int32)).tolist()
        return [Reason(name, reason[1], reason[2]) for name, reason in zip(named, reasons, strict=True)]

    def plot(self, ax: Any = None) -> Any:
        """Loss and validation by epoch, on matplotlib axes that are returned."""
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise ImportError("plot needs matplotlib; install it with pip install matplotlib") from error
        history = self.history_
        if ax is None:
            _, ax = pyplot.subplots()
        ax.plot(history["epoch"], history["loss"], color="tab:blue")
        ax.set_xlabel("epoch")
        ax.set_ylabel("loss per user", color="tab:blue")
        validated = [(e, v) for e, v in zip(history["epoch"], history["validation"], strict=True) if v is not None]
        if validated:
            right = ax.twinx()
            right.plot(*zip(*validated, strict=True), color="tab:orange", marker="o")
            right.set_ylabel("validation NDCG@50", color="tab:orange")
        return ax


def _flat(epoch: dict[str, Any]) -> dict[str, Any]:
    """A record of the library without its nested part."""
    flat = {name: value for name, value in epoch.items() if name != "proposal"}
    for name, value in (epoch.get("proposal") or {}).items():
        flat[f"proposal_{name}"] = value
    return flat
