-- 100 messages of 256 bytes per request.
local message = '{"payload":"' .. string.rep("x", 254) .. '"}'
wrk.method = "POST"
wrk.path = "/api/v1/ephemeral/push"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"queue":"floor-push","messages":[' .. string.rep(message .. ",", 99) .. message .. "]}"
