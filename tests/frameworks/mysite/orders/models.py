from __future__ import annotations

from django.db import models


class Order(models.Model):
    job: models.CharField[str, str] = models.CharField(max_length=64, default="")
    paid: models.BooleanField[bool, bool] = models.BooleanField(default=False)

    def __str__(self) -> str:
        return f"order {self.pk}"
