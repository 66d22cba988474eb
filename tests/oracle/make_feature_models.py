"""Models whose inputs and outputs are more than tensors: an image, a classifier, an optional input, shapes by a list and by ranges.

    make_feature_models.py tests/data/features

coremltools 9.0 writes them (no torch is needed); what they compute is said in the test (unit.api.test_api_features) by hand.
"""

import os
import shutil
import sys

import coremltools as ct
import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import get_new_symbol

into = sys.argv[1]
os.makedirs(into, exist_ok=True)


def save(name, program, image=None, **options):
    path = os.path.join(into, name + ".mlpackage")
    shutil.rmtree(path, ignore_errors=True)
    options.setdefault("minimum_deployment_target", ct.target.iOS16)
    model = ct.convert(program, source="milinternal", convert_to="mlprogram", skip_model_load=True,
                       compute_precision=ct.precision.FLOAT32, **options)
    if image is not None:  # of the output, which programs that no frontend made can't ask for
        spec = model.get_spec()
        spec.description.output[0].type.imageType.colorSpace = image
        spec.description.output[0].type.imageType.width = 4
        spec.description.output[0].type.imageType.height = 2
        model = ct.models.MLModel(spec, weights_dir=model.weights_dir, skip_model_load=True)
    model.save(path)


for layout, number in (("RGB", 20), ("BGR", 30)):
    @mb.program(input_specs=[mb.TensorSpec(shape=(1, 3, 2, 4))], opset_version=ct.target.iOS16)
    def colours(x):
        return mb.mul(x=x, y=np.array([1, 2, 3], np.float32).reshape(1, 3, 1, 1), name="y")

    save("image_" + layout.lower(), colours, image=number,
         inputs=[ct.ImageType(name="x", shape=(1, 3, 2, 4), color_layout=getattr(ct.colorlayout, layout), scale=2.0, bias=[1.0, 0.0, -3.0])])


@mb.program(input_specs=[mb.TensorSpec(shape=(1, 1, 2, 4))], opset_version=ct.target.iOS16)
def gray(x):
    return mb.add(x=x, y=np.float32(0.5), name="y")


save("image_gray", gray, image=10, inputs=[ct.ImageType(name="x", shape=(1, 1, 2, 4), color_layout=ct.colorlayout.GRAYSCALE)])


@mb.program(input_specs=[mb.TensorSpec(shape=(1, 3))], opset_version=ct.target.iOS16)
def scores(x):
    return mb.softmax(x=x, axis=1, name="p")


save("classifier_text", scores, classifier_config=ct.ClassifierConfig(["cat", "dog", "a \"bird\""]))


@mb.program(input_specs=[mb.TensorSpec(shape=(2,)), mb.TensorSpec(shape=(2,))], opset_version=ct.target.iOS16)
def with_default(x, bias):
    return mb.add(x=x, y=bias, name="y")


save("optional", with_default, inputs=[ct.TensorType("x", (2,)), ct.TensorType("bias", (2,), default_value=np.array([1.5, 1.5], np.float32))])

flexible = {"enumerated": ct.EnumeratedShapes([(1, 2), (1, 5)], default=(1, 2)),
            "ranged": (1, ct.RangeDim(2, 4, default=3))}
for name, shape in flexible.items():
    @mb.program(input_specs=[mb.TensorSpec(shape=(1, get_new_symbol()))],
                opset_version=ct.target.iOS16)
    def twice(x):
        return mb.mul(x=x, y=np.float32(2), name="y")

    save(name, twice, inputs=[ct.TensorType("x", shape)])
