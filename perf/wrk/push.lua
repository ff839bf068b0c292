-- One message of 256 bytes per request.
wrk.method = "POST"
wrk.path = "/api/v1/ephemeral/push"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"queue":"floor-push","messages":[{"payload":"' .. string.rep("x", 254) .. '"}]}'
