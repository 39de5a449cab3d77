# SPDX-License-Identifier: Apache-2.0
"""`python eas_client.py ADDRESS MODEL NUMBERS`: ask with the client of eas-prediction, as its makers publish it.

It needs an old protobuf and so an interpreter of its own. NUMBERS are the rows of the input "x" as JSON; it prints the
first output of the answer as JSON, its shape and its numbers, or the status and the message of a failure.
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
