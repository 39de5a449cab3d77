# SPDX-License-Identifier: Apache-2.0
"""Send a request with the published client of eas-prediction: `python eas_client.py ADDRESS MODEL NUMBERS`.

It needs an old protobuf and therefore a separate interpreter. NUMBERS are the rows of the input "x" as JSON. It prints
the first output as JSON (shape and numbers), or the status and the message of a failure.
"""

import json
import sys

from eas_prediction import PredictClient, TFRequest
from eas_prediction.exception import PredictException

address, model, text = sys.argv[1:]
rows = json.loads(text)
client = PredictClient(f"http://{address}", model)
client.set_token("token of a gateway")
client.set_retry_count(1)
client.init()
request = TFRequest("serving_default")
request.add_feed("x", [len(rows), len(rows[0])], TFRequest.DT_FLOAT, [value for row in rows for value in row])
try:
    response = client.predict(request)
except PredictException as error:
    print(json.dumps({"code": error.code, "message": str(error)}))
else:
    name = sorted(response.response.outputs)[0]
    print(json.dumps({"shape": response.get_tensor_shape(name), "values": list(response.get_values(name))}))
client.destroy()
