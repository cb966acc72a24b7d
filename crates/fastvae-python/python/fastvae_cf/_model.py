"""`FastVAE`: the variational autoencoder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from . import _fastvae
from ._data import UserItems, interactions
from ._fitted import Callback, Titles, fit_columns
from ._recommender import Recommender

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(kw_only=True, eq=False, repr=False)
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
        Where negatives come from: one of `fastvae_cf.proposals.KINDS`.
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
    ridge
        The sparse linear part beside the network: ``{"neighbours": ..., "penalty": ..., "power": ..., "weight": ...,
        "popularity": ...}``. What is absent is chosen on the validation part; ``{"weight": 0}`` is the network alone.
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
        Users per step (0: as many as leave enough steps); passes over the users, at most.
    patience, validate_every, validation_users
        Validations in a row without progress before training stops (0: never), epochs between them, and users, at
        most, that something is held out of for them (0: as many as it takes to choose by).
    pair
        Whether a network that is trained again on everything stands beside the one that has chosen its epochs, and the
        model is the mean of both: twice as wide, at no other training.
    random_state
        Seed of everything; None draws one.
    num_threads
        Worker threads, 0 for one per core. The result does not depend on it.
    refresh_every
        Epochs between refreshes of the index; 0 for as many as it takes to draw every item a few times.
    device
        What trains: ``"auto"`` (a GPU where one can be used), ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.

    Notes
    -----
    The scores are those of the network and of the linear part together; ``item_factors`` and ``user_factors`` are the network's.
    Where nothing is said of ``ridge`` and the network gains less than noise on the validation part, as it may on data of a few
    hundred users, the model does without it and has no factors: ``description_["blend"]`` tells.

    Examples
    --------
    >>> import fastvae_cf as fastvae
    >>> plays = fastvae.datasets.generate(users=300, items=200, interactions=6000)
    >>> model = fastvae.FastVAE(hidden=32, latent=16, epochs=5, codewords=8, ridge={"weight": 2}).fit(plays, show_progress=False)
    >>> model
    FastVAE(hidden=32, latent=16, codewords=8, ridge={'weight': 2}, epochs=5)
    >>> model.item_factors.shape
    (200, 16)
    >>> sorted(set(model.history_["epoch"]))
    [1, 2, 3, 4, 5]
    """

    _kind: ClassVar[str] = "fastvae"

    model: str = "fastvae"
    hidden: int = 300
    latent: int = 64
    encoder_rank: int = 0
    activation: str = "relu"
    dropout: float = 0.5
    latent_samples: int = 1
    item_bias: bool = False
    proposal: str = "midx-popularity"
    estimator: str = "stratified"
    negatives: int = 300
    codewords: int = 32
    codebooks: int = 2
    quantizer: str = "product"
    popularity: str = "log"
    kl: Mapping[str, float] | None = None
    ridge: Mapping[str, float] | None = None
    optimizer: str = "lazy-adam"
    moments: str = "compact"
    learning_rate: float = 2e-3
    decay: Mapping[str, Any] | None = None
    weight_decay: float = 0.01
    weight_decay_mode: str = "coupled"
    clip: float | None = None
    batch: int = 0
    epochs: int = 80
    patience: int = 4
    validate_every: int = 5
    validation_users: int = 0
    pair: bool = False
    random_state: int | None = 0
    num_threads: int = 0
    refresh_every: int = 0
    device: str = "auto"

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """The paper's settings: 200-32, constant beta, 200 epochs on all of the training data."""
        return cls._preset("paper", changes)

    @classmethod
    def quick(cls, **changes: Any) -> Self:
        """In seconds where the default takes a minute: a small network beside the linear part."""
        return cls._preset("quick", changes)

    @classmethod
    def best(cls, **changes: Any) -> Self:
        """A wide network beside the linear part: one or two per cent more accurate than the default, at three to four times
        its cost."""
        return cls._preset("best", changes)

    @classmethod
    def _preset(cls, name: str, changes: Mapping[str, Any]) -> Self:
        settings = json.loads(_fastvae.default_settings(preset=name))
        settings["random_state"], settings["num_threads"] = settings.pop("seed"), settings.pop("threads")
        return cls(**(settings | dict(changes)))

    def fit(
        self,
        user_items: UserItems,
        validation: UserItems = None,
        show_progress: bool = True,
        callback: Callback | None = None,
        *,
        titles: Titles = None,
        refit: bool | None = None,
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
            ``user_items`` is held out. `validation_` is how well the model did on it.
        show_progress
            Whether a bar is shown.
        callback
            Called after each epoch with a dict of what it saw (`history_` has the same keys). A true answer ends
            training: the parameters of the best validation are kept, without one the latest. What it raises ends the fit.
        titles
            What the items are called, for `ask`, lists of the command line and the service: a dict or pandas series by
            item, one title for each item in order, or the path of a file with columns of items and titles.
        refit
            Whether the model is trained again, on everything, for as many epochs as the held-out part chose: True,
            together with ``validation`` where that is given; False, never; by default where a part of more than 2 % was
            held out of ``user_items``. ``description_["learned"]`` tells what the model has seen.
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
        self._learn(data, columns, titles, show_progress, callback, self.epochs, held, refit)
        return self

    def plot(self, ax: Any = None) -> Any:
        """Loss and validation by epoch, on matplotlib axes that are returned."""
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise ImportError("plot needs matplotlib; install it with pip install matplotlib") from error
        history = self.history_
        if ax is None:
            _, ax = pyplot.subplots()
        epochs = list(zip(history["epoch"], history["loss"], history["validation"], history["refit"], strict=True))
        for again, style in ((False, "-"), (True, ":")):
            line = [(epoch, loss) for epoch, loss, _, refit in epochs if refit == again]
            if line:
                ax.plot(*zip(*line, strict=True), color="tab:blue", linestyle=style)
        ax.set_xlabel("epoch")
        ax.set_ylabel("loss per user", color="tab:blue")
        validated = [(epoch, value) for epoch, _, value, _ in epochs if value is not None]
        if validated:
            right = ax.twinx()
            right.plot(*zip(*validated, strict=True), color="tab:orange", marker="o")
            right.set_ylabel("validation NDCG@50", color="tab:orange")
        return ax
