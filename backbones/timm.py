"""Any model of timm by its name, its head replaced by the FC layer of `width` units.

    timm's features, pooled → FC = the feature vector x

`model` is a name of `timm.list_models()`; further options go to `timm.create_model` as they are (`drop_rate`,
`img_size`, …). Weights are random unless `pretrained` is true, which downloads them.

Wightman, "PyTorch Image Models", 2019 (https://github.com/huggingface/pytorch-image-models).
"""

import difflib

import torch
from torch import nn


class Backbone(nn.Module):
    def __init__(
        self,
        in_shape: tuple[int, int, int],
        width: int,
        *,
        model: str = "resnet18",
        pretrained: bool = False,
        **options,
    ) -> None:
        super().__init__()
        import timm

        if not timm.is_model(model):
            close = difflib.get_close_matches(model, timm.list_models(), n=1)
            raise ValueError(f"timm has no model '{model}'" + (f"; did you mean '{close[0]}'?" if close else ""))
        options = {"pretrained": pretrained, "in_chans": in_shape[0], "num_classes": 0, **options}
        try:
            try:  # transformers are built for one image size, convolutional networks for any
                self.body = timm.create_model(model, **{"img_size": in_shape[1:], **options})
            except TypeError as error:
                if "img_size" not in str(error) or "img_size" in options:
                    raise
                self.body = timm.create_model(model, **options)
        except TypeError as error:
            raise ValueError(f"timm's '{model}' does not take these options: {error}") from error
        self.body.eval()
        try:
            with torch.no_grad():
                length = self.body(torch.zeros(1, *in_shape)).shape[-1]
        except (AssertionError, RuntimeError) as error:
            raise ValueError(f"timm's '{model}' does not take images of shape {in_shape}: {error}") from error
        self.body.train()
        self.fc = nn.Linear(length, width)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(B, channels, height, width) → (B, `width`)."""
        return self.fc(self.body(images))
